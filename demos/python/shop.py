"""A web shop in small: a server with a pool of threads, a database in a file, a lock that one request
holds too long, and an event loop that one of its tasks blocks.

    demos/python/run

What to see: in the group `http`, 8 threads, each the server of one client.

    Search.find        state run: compiles a regular expression for every product, in `re`
    Orders.history     state run: asks the database once for every order, in sqlite3
    Report.page        state run: sorts with a key function
    Handler.do_GET     state run: writes the answers as JSON
    Login.check        state run, in OpenSSL's or Python's own PBKDF2, without the interpreter's lock
    Stock.reserve      waits: asks a slow warehouse with the lock held
    Payment.authorize  asleep: waits for a bank that is not there

All but Login.check share the interpreter's lock, so together they have one core at most. Between requests
a thread waits for its client: idle, press `i` to see it. The thread `prices` runs an event loop. It
waits most of the time, but Prices.audit blocks it.

    python3 shop.py [SECONDS]    how long (default 0: until killed)

Python 3.8 or newer. The clients are a process of their own.
"""

import asyncio
import concurrent.futures
import hashlib
import http.client
import http.server
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS = 8
PRODUCTS = ["%s %s no. %d" % (colour, thing, number)
            for colour in ("red", "green", "blue")
            for thing in ("lamp", "table", "chair", "shelf")
            for number in range(10)]


class Search:
    """Finds products by a pattern."""

    def find(self, word):
        return [product for product in PRODUCTS if self.matches(word, product)]

    def matches(self, word, product):
        # Each product has a pattern of its own, so the cache of `re` is of no use.
        pattern = re.compile("(?i)^(?P<colour>[a-z]+)\\s+%s\\s+.*(?#%s %f)$"
                             % (re.escape(word), re.escape(product), time.monotonic()))
        return pattern.match(product) is not None


class Orders:
    """The orders of customers, in a database."""

    def __init__(self, path):
        self.path = path
        self.local = threading.local()
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER)")
            database.execute("CREATE TABLE lines (order_id INTEGER, product TEXT, price REAL)")
            for order in range(4000):
                database.execute("INSERT INTO orders VALUES (?, ?)", (order, order % 10))
                for product in random.sample(PRODUCTS, 3):
                    database.execute("INSERT INTO lines VALUES (?, ?, ?)", (order, product, 9.5))
            database.execute("CREATE INDEX by_order ON lines (order_id)")
        database.close()

    def connection(self):
        # Connections belong to the thread that made them.
        if not hasattr(self.local, "connection"):
            self.local.connection = sqlite3.connect(self.path)
        return self.local.connection

    def close(self):
        if hasattr(self.local, "connection"):
            self.local.connection.close()
            del self.local.connection

    def history(self, customer):
        database = self.connection()
        rows = database.execute("SELECT id FROM orders WHERE customer = ?", (customer,)).fetchall()
        return [self.lines(database, order) for (order,) in rows]

    def lines(self, database, order):
        # One query for each order, where one for all would do.
        query = "SELECT product, sum(price) FROM lines WHERE order_id = ? GROUP BY product"
        return database.execute(query, (order,)).fetchall()


class Report:
    """Figures of the month."""

    def __init__(self):
        self.sales = [{"product": random.choice(PRODUCTS), "amount": random.random()}
                      for _ in range(4000)]

    def page(self):
        ordered = sorted(self.sales, key=self.rank)
        return json.dumps(ordered[:1000], indent=1)

    def rank(self, sale):
        return (sale["product"].split()[1], -sale["amount"])


class Login:
    """Checks passwords."""

    def check(self, name):
        return hashlib.pbkdf2_hmac("sha256", name.encode(), b"salt", 60000).hex()


class Stock:
    """What is in the warehouse."""

    def __init__(self):
        self.lock = threading.Lock()

    def reserve(self):
        with self.lock:
            self.ask_warehouse()

    def ask_warehouse(self):
        time.sleep(0.02)


class Payment:
    """Payments by a bank."""

    def authorize(self):
        time.sleep(0.05)


class Prices:
    """Prices of other shops, kept fresh by tasks of an event loop."""

    def run(self):
        asyncio.run(self.main())

    async def main(self):
        await asyncio.gather(self.audit(), *(self.follow(shop) for shop in range(20)))

    async def follow(self, shop):
        while True:
            await asyncio.sleep(0.1 + shop / 100)

    async def audit(self):
        while True:
            await asyncio.sleep(0.1)
            # Blocks all tasks of the loop; `await asyncio.sleep` would not.
            time.sleep(0.03)


class Shop:
    """All parts of the shop, by the path of their requests."""

    def __init__(self, folder):
        search, orders, report = Search(), Orders(os.path.join(folder, "orders.db")), Report()
        login, stock, payment = Login(), Stock(), Payment()
        self.orders = orders
        self.pages = {
            "/search": lambda: search.find(random.choice(("lamp", "chair"))),
            "/orders": lambda: orders.history(random.randrange(10)),
            "/report": report.page,
            "/login": lambda: login.check("ann"),
            "/cart": stock.reserve,
            "/pay": payment.authorize,
        }


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of one client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        page = self.server.shop.pages.get(self.path)
        body = json.dumps(page()).encode() if page else b""
        self.send_response(200 if page else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.HTTPServer):
    """Serves each client in a thread of a pool."""

    request_queue_size = CLIENTS

    def __init__(self, shop):
        super().__init__(("127.0.0.1", 0), Handler)
        self.shop = shop
        self.pool = concurrent.futures.ThreadPoolExecutor(CLIENTS, thread_name_prefix="http")

    def process_request(self, request, client_address):
        self.pool.submit(self.serve_client, request, client_address)

    def serve_client(self, request, client_address):
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # The client is gone.
        finally:
            self.shutdown_request(request)
            self.shop.orders.close()


def load(port):
    """Sends requests until the server is gone or standard input ends."""

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", port)
        pages = ["/search", "/search", "/orders", "/report", "/login", "/cart", "/pay"]
        try:
            while True:
                connection.request("GET", random.choice(pages))
                connection.getresponse().read()
                time.sleep(0.005)
        except (OSError, http.client.HTTPException):
            pass

    for _ in range(CLIENTS):
        threading.Thread(target=client, daemon=True).start()
    sys.stdin.read()


def main():
    if sys.argv[1:2] == ["--load"]:
        return load(int(sys.argv[2]))
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Shop(folder))
        threading.Thread(target=Prices().run, name="prices", daemon=True).start()
        threading.Thread(target=server.serve_forever, name="accept", daemon=True).start()
        clients = [sys.executable, os.path.abspath(__file__), "--load", str(server.server_port)]
        # Its input ends when this process does, however that ends.
        with subprocess.Popen(clients, stdin=subprocess.PIPE) as process:
            try:
                threading.Event().wait(seconds or None)
            except KeyboardInterrupt:
                pass
            process.kill()
        server.shutdown()
        server.server_close()
        server.pool.shutdown()


if __name__ == "__main__":
    main()
