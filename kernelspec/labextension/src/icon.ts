// A chip with a T, in the colours of the theme.

import { LabIcon } from '@jupyterlab/ui-components';

const LEGS = [6, 10, 14].map(at => `M${at + 2} 2v3M${at + 2} 19v3M2 ${at + 2}h3M19 ${at + 2}h3`).join('');

export const chipIcon = new LabIcon({
  name: 'pytorch-tpu-kernel:chip',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><g class="jp-icon3 jp-icon-selectable" fill="#616161"><path fill-rule="evenodd" d="M5 4h14a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1zm3 4v2.2h2.9V17h2.2v-6.8H16V8z"/></g><path class="jp-icon3-stroke" stroke="#616161" stroke-width="1.6" d="${LEGS}"/></svg>`,
});
