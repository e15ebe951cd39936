// Three functions whose work is as 6 to 3 to 1, or one that tries a slow regular expression, for ever.
//   node parts.js parts|regexp
'use strict';
let sink = 0;
function work(rounds) {
  let x = sink;
  for (let i = 0; i < rounds * 20000; i++) x = (((x & 0xffff) * 20077) + 12345) | 0;
  return x;
}
function six() {
  sink ^= work(6);
}
function three() {
  sink ^= work(3);
}
function one() {
  sink ^= work(1);
}
function matches(text) {
  return /^(a+)+$/.test(text);
}
console.log('ready');
// Whoever started it may be gone.
const parent = process.ppid;
while (process.ppid === parent) {
  if (process.argv[2] === 'regexp') {
    matches('aaaaaaaaaaaaaaaaaaaab');
  } else {
    six();
    three();
    one();
  }
}
