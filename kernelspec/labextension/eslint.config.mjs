import tseslint from 'typescript-eslint';

export default tseslint.config(...tseslint.configs.recommendedTypeChecked, {
  languageOptions: { parserOptions: { projectService: true } },
  rules: {
    eqeqeq: 'error',
    // A signal is connected to a method and the object it is called on.
    '@typescript-eslint/unbound-method': 'off',
  },
});
