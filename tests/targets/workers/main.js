// Starts one worker for each kind: by its file, by an ES module, by its text, and by a name of its own. All are busy in a function of another file.
'use strict';
const { Worker } = require('worker_threads');
const busy = JSON.stringify(require.resolve('./busy.js'));
new Worker(require.resolve('./rank.js'));
new Worker(require.resolve('./resize.mjs'));
new Worker(`require(${busy})(() => {})`, { eval: true });
new Worker(require.resolve('./rank.js'), { name: 'ranker' });
console.log('ready');
const parent = process.ppid;
setInterval(() => process.ppid === parent || process.exit(), 100);
