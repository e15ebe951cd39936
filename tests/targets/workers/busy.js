// Works, and lets other code run now and then.
'use strict';
let sink = 0;
module.exports = (called) => {
  setInterval(function busy() {
    for (let i = 0; i < 2e6; i++) sink = (sink * 20077 + i) | 0;
    called();
  }, 1);
};
