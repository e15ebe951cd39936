// A shop of one process: a server, and its clients in a worker. Node 20 or newer.
//
//   demos/node/run              in sampletop
//   node demos/node/shop.js     alone; an argument is the number of seconds it runs (default: 600)
//
// What you should see: most of the time on the CPU is in `Cart.total`, which sums the prices of a
// whole catalogue anew for each item. Some is in a regular expression of `search`. The passwords
// that `login` checks are hashed in threads of libuv's pool, and the main thread goes on meanwhile.
'use strict';
const http = require('http');
const { pbkdf2 } = require('crypto');
const { Worker, isMainThread, workerData } = require('worker_threads');

const catalogue = Array.from({ length: 3000 }, (_, id) => ({ id, name: `item ${id}`, price: (id * 37) % 100 }));

class Cart {
  constructor(ids) {
    this.ids = ids;
  }

  priceOf(id) {
    let price = 0;
    for (const item of catalogue) if (item.id === id) price = item.price;
    return price;
  }

  total() {
    return this.ids.map((id) => this.priceOf(id)).reduce((sum, price) => sum + price, 0);
  }
}

function search(words) {
  const pattern = new RegExp(`.*${words}.*5$`);
  return catalogue.filter((item) => pattern.test(item.name)).length;
}

function login(name, done) {
  pbkdf2(name, 'salt', 20000, 32, 'sha256', (error, key) => done(error ? 'no' : key.toString('hex')));
}

const ROUTES = {
  '/cart': (answer) => answer({ total: new Cart(Array.from({ length: 60 }, (_, nth) => nth * 7)).total() }),
  '/search': (answer) => answer({ found: search('item 1') }),
  '/login': (answer) => login('ann', (key) => answer({ key })),
};

function serve(request, response) {
  const route = ROUTES[request.url];
  if (route === undefined) {
    response.writeHead(404).end();
    return;
  }
  route((answer) => response.end(JSON.stringify(answer)));
}

async function buy(port) {
  const agent = new http.Agent({ keepAlive: true });
  const get = (path) =>
    new Promise((done, failed) => {
      const request = http.get({ port, path, agent, host: '127.0.0.1' }, (response) => {
        response.resume();
        response.on('end', done);
      });
      request.on('error', failed);
    });
  for (;;) for (const path of ['/cart', '/search', '/cart', '/login']) await get(path);
}

if (isMainThread) {
  const seconds = Number(process.argv[2] ?? 600);
  let served = 0;
  const server = http.createServer((request, response) => {
    served += 1;
    serve(request, response);
  });
  server.listen(0, '127.0.0.1', () => {
    console.log('ready');
    const clients = new Worker(__filename, { workerData: server.address().port });
    clients.on('error', (error) => {
      throw error;
    });
    setTimeout(() => {
      console.log(`${served} requests in ${seconds} s`);
      process.exit(0);
    }, seconds * 1000);
  });
} else {
  for (let client = 0; client < 4; client += 1) buy(workerData);
}
