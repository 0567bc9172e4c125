const { rspack } = require('@rspack/core');

module.exports = {
  resolve: { extensions: ['.ts', '...'] },
  module: {
    rules: [
      {
        // TypeScript goes straight into the bundle: types are checked by `npm run lint`.
        test: /\.ts$/,
        loader: 'builtin:swc-loader',
        options: { jsc: { parser: { syntax: 'typescript' }, target: 'es2022' } },
        type: 'javascript/auto',
      },
    ],
  },
  // As a file of its own it needs none of the scripts that put a style sheet into the page.
  plugins: [new rspack.CopyRspackPlugin({ patterns: ['style/panel.css'] })],
};
