// Workers that wait for good, some 15 functions of JavaScript deep. Argument: how many. Says `ready`.
'use strict';
const { Worker, isMainThread, parentPort } = require('worker_threads');

const never = new Int32Array(new SharedArrayBuffer(4));
const DEPTH = 3;

class Order {
  constructor(depth) {
    this.depth = depth;
  }

  total(wait) {
    return this.depth === 0 ? wait() : deeper(new Order(this.depth - 1), wait) + 1;
  }
}

function deeper(order, wait) {
  return [order].map((each) => each.total(wait))[0];
}

function calls(wait) {
  return new Order(DEPTH).total(wait);
}

if (isMainThread) {
  let missing = Number(process.argv[2]);
  for (let n = missing; n > 0; n -= 1) {
    new Worker(__filename).on('message', () => {
      missing -= 1;
      if (missing === 0) console.log('ready');
    });
  }
} else {
  // So that the compilers have seen the calls.
  for (let n = 0; n < 20000; n += 1) calls(() => n);
  calls(() => {
    parentPort.postMessage('waits');
    return Atomics.wait(never, 0, 0) === 'ok' ? 1 : 0;
  });
}
