// Functions of each shape that call each other. The innermost one prints the functions, files and lines of its stack as V8 tells them, and waits.
//   node --allow-natives-syntax shapes.js cold|optimized|deoptimized|worker
'use strict';
const { Worker, isMainThread, workerData } = require('worker_threads');
const how = isMainThread ? process.argv[2] : workerData;
const cell = new Int32Array(new SharedArrayBuffer(4));
Error.stackTraceLimit = 100;
// Of a method V8 knows the class of its object. The class that defines it may be one further up.
function named(site) {
  const name = site.getFunctionName();
  const key = name.replace('get ', '');
  let prototype = CLASSES[site.getTypeName()]?.prototype;
  while (prototype && !Object.hasOwn(prototype, key)) prototype = Object.getPrototypeOf(prototype);
  return prototype ? `${prototype.constructor.name}.${name}` : name;
}
Error.prepareStackTrace = (_, sites) =>
  sites.filter((site) => site.getFileName() === __filename).map((site) => [named(site), site.getLineNumber()]);

class Shape {
  start(n) {
    return this.side;
  }
  area(n) {
    return this.#inner(n);
  }
  #inner(n) {
    return viaGetter({
      get value() {
        return closure(n);
      },
    });
  }
  static of(n) {
    return new this().start(n) + small(n);
  }
}
// Methods that are inherited, a getter, and one of a class that is a function.
class Square extends Shape {
  total(n) {
    return super.area(n);
  }
  get side() {
    return this.perimeter(1);
  }
}
function Old() {}
Old.prototype = { constructor: Old };
Old.prototype.perimeter = function perimeter(n) {
  return this.total(n);
};
Object.setPrototypeOf(Shape.prototype, Old.prototype);
const CLASSES = { Shape, Square, Old };
function viaGetter(object) {
  return object.value;
}
const closure = (n) => [n].map(function mapped(each) {
  return gen(each).next().value;
})[0];
function* gen(n) {
  yield evaled(n);
}
function evaled(n) {
  return eval('tower(n)');
}
// Small enough for the compiler to put each into its caller.
function tower(n) {
  return first(n) + 1;
}
function first(n) {
  const a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
  const use = () => a + b + c + d + e + f;
  return second(n) + use();
}
function second(n) {
  return rest(n) + 1;
}
function small(n) {
  return n + 1;
}
function rest(n) {
  if (n === 1) tell(new Error('here').stack), Atomics.wait(cell, 0, 0, 60000);
  return 1;
}
function tell(stack) {
  require('fs').writeSync(1, `ready\n${JSON.stringify(stack)}\n`);
}
async function later(n) {
  await null;
  const größe = () => Square.of(n);
  return größe();
}

if (isMainThread && how === 'worker') {
  new Worker(__filename, { workerData: how, execArgv: [] });
} else {
  if (how === 'optimized' || how === 'deoptimized') {
    // Otherwise it becomes part of its caller, and a branch that was never taken ends that code.
    if (how === 'optimized') %NeverOptimizeFunction(rest);
    for (const f of [tower, first, second]) %PrepareFunctionForOptimization(f);
    for (let i = 0; i < 3; i++) tower(2);
    %OptimizeFunctionOnNextCall(tower);
    tower(2);
  }
  later(1);
}
