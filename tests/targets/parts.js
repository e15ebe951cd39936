// Three functions whose work is as 6 to 3 to 1, or one that tries a slow regular expression, for
// ever, or hashes in threads of libuv's pool.
//   node parts.js parts|regexp|hash
'use strict';
let sink = 0;
// Of a random length: equal turns would be in step with the clock that takes samples.
function work(rounds) {
  const length = rounds * 20000 * (0.5 + Math.random());
  let x = sink;
  for (let i = 0; i < length; i++) x = (((x & 0xffff) * 20077) + 12345) | 0;
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
function hash() {
  if (process.ppid === parent) require('crypto').pbkdf2('a', 'salt', 20000, 32, 'sha256', hash);
}
console.log('ready');
// Whoever started it may be gone.
const parent = process.ppid;
if (process.argv[2] === 'hash') hash();
else while (process.ppid === parent) {
  if (process.argv[2] === 'regexp') {
    matches('aaaaaaaaaaaaaaaaaaaab');
  } else {
    six();
    three();
    one();
  }
}
