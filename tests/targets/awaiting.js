// Async functions that await each other, in each way in which a promise leads from one to the next. The innermost one calls a function of its
// own, `in...`, which is busy for some time, or waits. Before, the program prints for each of these functions its stack as V8 tells it.
//   node awaiting.js burn|churn|wait FUNCTION
'use strict';
const { Users, pages, query, rejected, viaArrow } = require('./awaited.js');
const [how, which] = process.argv.slice(2);
const parent = process.ppid;
const cell = new Int32Array(new SharedArrayBuffer(4));
Error.stackTraceLimit = 100;
// Of each function of these two files: its name, its line, and whether it awaits another.
Error.prepareStackTrace = (_, sites) =>
  sites.filter((site) => site.getFileName()?.includes('/await')).map((site) => [named(site), site.getLineNumber(), site.isAsync()]);
function named(site) {
  const name = site.getFunctionName();
  return name === 'load' ? `Users.${name}` : name ?? '(anonymous)';
}

const told = {};
let sink = 0;
let seed = 1;
function random() {
  seed = (seed * 1103515245 + 12345) & 0x7fffffff;
  return seed / 0x7fffffff;
}
function work() {
  const stack = new Error('here').stack.slice(1);
  const [name] = stack[0];
  if (!told[name]) {
    told[name] = stack;
  } else if (how === 'wait') {
    if (name !== which) return;
    tell();
    Atomics.wait(cell, 0, 0, 60000);
  } else if (how === 'churn') {
    churn(performance.now() + 4 * random() ** 3);
  } else {
    burn();
  }
}
function tell() {
  require('fs').writeSync(1, `ready\n${JSON.stringify(told)}\n`);
}
// Some 100 ms.
function burn() {
  for (let i = 0; i < 20e6; i++) sink = (sink * 20077 + i) | 0;
}
// Makes garbage of the kinds that lead from a function to the one that awaits it.
function churn(till) {
  const kept = [];
  while (performance.now() < till) {
    for (let i = 0; i < 20; i++) kept[i % 7] = [Promise.resolve(i), new Promise(() => {}), query(() => {})];
  }
  sink += kept.length;
}
function inCalls() {
  work();
}
function inFirst() {
  work();
}
function inSecond() {
  work();
}
function inAll() {
  work();
}
function inAllSettled() {
  work();
}
function inAny() {
  work();
}
function inRace() {
  work();
}
function inFinally() {
  work();
}
function inWrapped() {
  work();
}
function inReturned() {
  work();
}
function inGenerator() {
  work();
}
function inRejected() {
  work();
}

async function calls() {
  await new Users().load(inCalls);
}
async function twice() {
  for (let i = 0; i < 2; i++) {
    await query(inFirst);
    await viaArrow(inSecond);
  }
}
async function all() {
  const [, rows] = await Promise.all([null, viaArrow(inAll)]);
  return rows;
}
async function allSettled() {
  await Promise.allSettled([query(inAllSettled)]);
}
async function any() {
  await Promise.any([query(inAny)]);
}
async function race() {
  await Promise.race([query(inRace)]);
}
async function cleansUp() {
  await query(inFinally)
    .then((rows) => rows)
    .finally(() => {});
}
async function wraps() {
  await new Promise((resolve, reject) => {
    query(inWrapped).then(resolve, reject);
  });
}
async function returns() {
  await passes();
}
async function passes() {
  await null;
  return new Users().load(inReturned);
}
async function iterates() {
  for await (const page of pages(inGenerator)) sink += page;
}
async function catches() {
  await rejected(inRejected);
}
const SHAPES = [calls, twice, all, allSettled, any, race, cleansUp, wraps, returns, iterates, catches];

// One function for all, which only the one that it calls tells apart.
async function shared(leaf) {
  await null;
  sink += new Array(Math.floor(200 * random())).length;
  leaf();
}
function inOne() {
  work();
}
function inTwo() {
  work();
}
function inThree() {
  work();
}
async function one() {
  await shared(inOne);
}
async function two() {
  await null;
  await shared(inTwo);
}
async function three() {
  await Promise.all([shared(inThree)]);
}
const REQUESTS = [one, two, three];

async function requests() {
  const started = Array.from({ length: 40 }, () => REQUESTS[Math.floor(3 * random())]());
  await Promise.all(started);
}
async function shapes() {
  for (const shape of SHAPES) {
    await shape();
  }
}
async function main() {
  const round = how === 'churn' ? requests : shapes;
  for (let rounds = 0; process.ppid === parent; rounds++) {
    await round();
    if (rounds === 0 && how !== 'wait') tell();
    await new Promise((resolve) => setImmediate(resolve));
  }
}
main();
