// Functions that call each other in a known order, as interpreted, baseline or optimised code, that burn CPU time, mostly call each other, or wait.
//   node --allow-natives-syntax --no-turbo-inlining jit.js TIER burn|call|wait
'use strict';
const [tier, what] = process.argv.slice(2);
const cell = new Int32Array(new SharedArrayBuffer(4));
const rounds = what === 'call' ? 3 : 20000;
let sink = 0;

function burn(n) {
  let x = n;
  for (let i = 0; i < rounds; i++) x = (((x & 0xffff) * 20077) + 12345) | 0;
  return x;
}
function inner(n, leaf) {
  let s = 0;
  for (let i = 0; i < 3; i++) s ^= leaf(n + i);
  return s;
}
function middle(n, leaf) {
  return inner(n, leaf) + inner(n + 1, leaf);
}
function outer(n, leaf) {
  return middle(n, leaf) ^ 1;
}
let timeout = 0;
function rest(n) {
  Atomics.wait(cell, 0, 0, timeout);
  return n | 0;
}

const leaf = what === 'wait' ? rest : burn;
const all = [leaf, inner, middle, outer];
const once = () => { sink ^= outer(sink & 0xff, leaf); };
if (tier === 'baseline') {
  %CompileBaseline(leaf); %CompileBaseline(inner); %CompileBaseline(middle); %CompileBaseline(outer);
  %NeverOptimizeFunction(leaf); %NeverOptimizeFunction(inner); %NeverOptimizeFunction(middle); %NeverOptimizeFunction(outer);
}
if (tier === 'optimized') {
  for (const f of all) %PrepareFunctionForOptimization(f);
  once();
  once();
  for (const f of all) { %OptimizeFunctionOnNextCall(f); once(); }
}
once();
timeout = 60000;
console.log('ready');
// Whoever started it may be gone.
const parent = process.ppid;
while (process.ppid === parent) once();
