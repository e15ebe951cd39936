import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * A web shop in small: a pool of request threads, a database at the other end of a socket, a lock that one request holds too
 * long, and more garbage than is good.
 *
 *     demos/java/run shop
 *
 * What to see: in the group `http-exec-`, 12 threads.
 *
 *     search    a pipeline of lambdas: state run, all of it in Search.find
 *     order     waits for the database: state io, in Database.query, 40 ms each
 *     cart      state lock: Stock.reserve is synchronized, and asks the database with the lock held
 *     pay       waits for a bank that is not there: asleep, in Payment.authorize
 *     history   makes garbage: `GC Thread` and others of the virtual machine get busy
 *
 * The rest of the pool's time is waiting for work: idle, press `i` to see it. `clients` sends requests, `database` answers.
 *
 *     java Shop [SECONDS]    how long (default 0: until killed)
 */
public class Shop {
    /** Answers each question after as many milliseconds as it says, as a database under load does. */
    static final class Server implements Runnable {
        private static final class Answer {
            final long due;
            final int number;
            final SocketChannel to;

            Answer(int milliseconds, SocketChannel to) {
                this.due = System.nanoTime() + milliseconds * 1_000_000L;
                this.number = milliseconds;
                this.to = to;
            }
        }

        private final Selector selector = Selector.open();
        private final ServerSocketChannel listening = ServerSocketChannel.open();
        private final Queue<Answer> owed = new PriorityQueue<>(Comparator.comparingLong((Answer answer) -> answer.due));

        Server() throws IOException {
            listening.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0)).configureBlocking(false);
            listening.register(selector, SelectionKey.OP_ACCEPT);
        }

        int port() throws IOException {
            return ((InetSocketAddress) listening.getLocalAddress()).getPort();
        }

        @Override
        public void run() {
            try {
                while (true) {
                    turn();
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private void turn() throws IOException {
            long wait = owed.isEmpty() ? 0 : Math.max(1, (owed.peek().due - System.nanoTime()) / 1_000_000);
            selector.select(wait);
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    listening.accept().configureBlocking(false).register(selector, SelectionKey.OP_READ);
                } else {
                    SocketChannel client = (SocketChannel) key.channel();
                    ByteBuffer question = ByteBuffer.allocate(4);
                    client.read(question);
                    owed.add(new Answer(question.flip().getInt(), client));
                }
            }
            selector.selectedKeys().clear();
            while (!owed.isEmpty() && owed.peek().due <= System.nanoTime()) {
                Answer answer = owed.remove();
                answer.to.write(ByteBuffer.allocate(4).putInt(answer.number).flip());
            }
        }
    }

    /** Connections, each used by one request at a time. */
    static final class Database {
        private final int port;
        private final Deque<Socket> free = new ArrayDeque<>();

        Database(int port) {
            this.port = port;
        }

        int query(int milliseconds) throws IOException {
            Socket connection = connection();
            new DataOutputStream(connection.getOutputStream()).writeInt(milliseconds);
            int answer = new DataInputStream(connection.getInputStream()).readInt();
            synchronized (free) {
                free.push(connection);
            }
            return answer;
        }

        private Socket connection() throws IOException {
            synchronized (free) {
                if (!free.isEmpty()) {
                    return free.pop();
                }
            }
            return new Socket(InetAddress.getLoopbackAddress(), port);
        }
    }

    static final class Search {
        private final List<String> products = new Random(1).ints(100_000, 0, 1 << 20).mapToObj(n -> "product " + n)
                .collect(Collectors.toList());

        int find(String... words) {
            return Stream.of(words).flatMap(word -> products.stream().filter(name -> name.contains(word)))
                    .map(String::toUpperCase).sorted(Comparator.reverseOrder()).limit(10).mapToInt(String::length).sum();
        }
    }

    static final class Stock {
        private final Map<Integer, Integer> left = new HashMap<>();
        private final Database database;

        Stock(Database database) {
            this.database = database;
        }

        /** Asks the database with the lock held: every request does this once. */
        synchronized int reserve(int product) throws IOException {
            int answer = database.query(15);
            return left.merge(product, answer, Integer::sum);
        }
    }

    static final class Payment {
        boolean authorize(int amount) throws InterruptedException {
            Thread.sleep(30);
            return amount > 0;
        }
    }

    /** Keeps some of what it makes, so that it grows old. */
    static final class History {
        private final Deque<byte[]> kept = new ArrayDeque<>();

        int render(int pages) {
            int length = 0;
            for (int page = 0; page < pages; page++) {
                byte[] text = IntStream.range(0, 2_000).mapToObj(Integer::toString).collect(Collectors.joining(", "))
                        .getBytes();
                length += text.length;
                synchronized (kept) {
                    kept.add(text);
                    if (kept.size() > 1_500) {
                        kept.remove();
                    }
                }
            }
            return length;
        }
    }

    final Database database;
    final Search search = new Search();
    final Stock stock;
    final Payment payment = new Payment();
    final History history = new History();
    volatile long sink;

    Shop(int port) {
        database = new Database(port);
        stock = new Stock(database);
    }

    void serve(int request) {
        try {
            switch (request % 10) {
                case 0: case 1: case 2:
                    search(request);
                    break;
                case 3: case 4: case 5:
                    order(request);
                    break;
                case 6: case 7:
                    cart(request);
                    break;
                case 8:
                    pay(request);
                    break;
                default:
                    history(request);
            }
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    void search(int request) {
        sink += search.find("shoe " + request, Integer.toString(request % 100), "7" + request % 10);
    }

    void order(int request) throws IOException {
        sink += database.query(40) + request;
    }

    void cart(int request) throws IOException {
        sink += stock.reserve(request % 50);
    }

    void pay(int request) throws InterruptedException {
        sink += payment.authorize(request) ? 1 : 0;
    }

    void history(int request) {
        sink += history.render(20);
    }

    static Thread daemon(String name, Runnable work) {
        Thread thread = daemonThread(name, work);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        long seconds = arguments.length > 0 ? Long.parseLong(arguments[0]) : 0;
        Server server = new Server();
        daemon("database", server);
        Shop shop = new Shop(server.port());
        AtomicInteger number = new AtomicInteger();
        ThreadFactory named = work -> daemonThread("http-exec-" + number.incrementAndGet(), work);
        BlockingQueue<Runnable> waiting = new LinkedBlockingQueue<>();
        ExecutorService pool = new ThreadPoolExecutor(12, 12, 1, TimeUnit.MINUTES, waiting, named);
        daemon("clients", () -> {
            Random random = new Random(1);
            while (true) {
                // More is not accepted: the pool is never far behind.
                if (waiting.size() < 20) {
                    int request = random.nextInt(1_000_000);
                    pool.execute(() -> shop.serve(request));
                }
                pause(7);
            }
        });
        System.out.println("ready");
        Thread.sleep(seconds > 0 ? seconds * 1_000 : Long.MAX_VALUE);
        System.exit(0);
    }

    static Thread daemonThread(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    static void pause(int milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
