package fairlock;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A process that locks with the real Redisson, for tests.
 *
 * <p>It is started with an address, the watchdog's time and the patience with waiters of a fair
 * lock (both in ms, 0 for Redisson's own). It reads a command per line,
 *
 * <pre>NUMBER THREAD VERB [KIND NAME [ARGUMENT...]]</pre>
 *
 * and answers each when it is done with {@code NUMBER MICROSECONDS ANSWER}, the time on the wall
 * clock. A thread is any word; its commands are executed one after the other by a Java thread of
 * its own, which is what Redisson takes for the owner. Kinds: lock, fair, read, write, fenced.
 *
 * <pre>
 * lock [LEASE]          held [TOKEN]
 * trylock [WAIT LEASE]  held [TOKEN] | busy
 * unlock                released | not-owner
 * force                 true | false
 * count                 how often this thread holds it
 * islocked              true | false
 * held                  true | false: by this thread
 * ttl                   what is left of the lease, in ms
 * add FILE ROUNDS       done: adds one to the number in a file, so often, under the lock
 * crash                 nothing: the process is gone, and nothing is tidied up
 * quit                  nothing: the process ends properly
 * </pre>
 *
 * Whatever is thrown is answered as {@code error CLASS: MESSAGE}.
 */
public final class Peer {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final Map<String, ExecutorService> THREADS = new ConcurrentHashMap<>();

    private final RedissonClient redisson;

    private Peer(RedissonClient redisson) {
        this.redisson = redisson;
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer()
                .setAddress(args[0])
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(24)
                .setSubscriptionConnectionMinimumIdleSize(1);
        config.setThreads(4);
        config.setNettyThreads(4);
        setIfGiven(config, "setLockWatchdogTimeout", args[1]);
        setIfGiven(config, "setFairLockWaitTimeout", args[2]);
        Peer peer = new Peer(Redisson.create(config));
        answer("0", "ready");

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[2]) {
                case "crash":
                    Runtime.getRuntime().halt(137);
                    break;
                case "quit":
                    peer.redisson.shutdown();
                    Runtime.getRuntime().halt(0);
                    break;
                default:
                    THREADS.computeIfAbsent(words[1], name -> Executors.newSingleThreadExecutor())
                            .execute(() -> peer.obey(words));
            }
        }
        // The test is gone.
        Runtime.getRuntime().halt(1);
    }

    /** Calls a setter that takes a long, if there is something to set; old versions lack some. */
    private static void setIfGiven(Config config, String setter, String value) throws Exception {
        if (!value.equals("0")) {
            Config.class.getMethod(setter, long.class).invoke(config, Long.parseLong(value));
        }
    }

    private void obey(String[] words) {
        String answer;
        try {
            String[] arguments = Arrays.copyOfRange(words, Math.min(words.length, 5), words.length);
            answer = execute(words[2], lock(words[3], words[4]), arguments);
        } catch (IllegalMonitorStateException notOwner) {
            answer = "not-owner";
        } catch (Throwable thrown) {
            String message = String.valueOf(thrown.getMessage()).replaceAll("\\s+", " ");
            answer = "error " + thrown.getClass().getName() + ": " + message;
        }
        answer(words[0], answer);
    }

    private RLock lock(String kind, String name) {
        switch (kind) {
            case "lock":
                return redisson.getLock(name);
            case "fair":
                return redisson.getFairLock(name);
            case "read":
                return redisson.getReadWriteLock(name).readLock();
            case "write":
                return redisson.getReadWriteLock(name).writeLock();
            case "fenced":
                return redisson.getFencedLock(name);
            default:
                throw new IllegalArgumentException("no kind of lock: " + kind);
        }
    }

    private String execute(String verb, RLock lock, String[] arguments) throws Exception {
        switch (verb) {
            case "lock":
                if (arguments.length == 0) {
                    lock.lock();
                } else {
                    lock.lock(Long.parseLong(arguments[0]), TimeUnit.MILLISECONDS);
                }
                return held(lock);
            case "trylock":
                return tryLock(lock, arguments) ? held(lock) : "busy";
            case "unlock":
                lock.unlock();
                return "released";
            case "force":
                return String.valueOf(lock.forceUnlock());
            case "count":
                return String.valueOf(lock.getHoldCount());
            case "islocked":
                return String.valueOf(lock.isLocked());
            case "held":
                return String.valueOf(lock.isHeldByCurrentThread());
            case "ttl":
                return String.valueOf(lock.remainTimeToLive());
            case "add":
                add(lock, Path.of(arguments[0]), Integer.parseInt(arguments[1]));
                return "done";
            default:
                throw new IllegalArgumentException("no command: " + verb);
        }
    }

    private static boolean tryLock(RLock lock, String[] arguments) throws InterruptedException {
        if (arguments.length == 0) {
            return lock.tryLock();
        }
        long wait = Long.parseLong(arguments[0]);
        long lease = Long.parseLong(arguments[1]);
        return lock.tryLock(wait, lease, TimeUnit.MILLISECONDS);
    }

    private static String held(RLock lock) {
        return lock instanceof RFencedLock ? "held " + ((RFencedLock) lock).getToken() : "held";
    }

    private static void add(RLock lock, Path file, int rounds) throws Exception {
        for (int round = 0; round < rounds; round++) {
            lock.lock();
            try {
                long number = Long.parseLong(Files.readString(file).trim());
                Files.writeString(file, String.valueOf(number + 1));
            } finally {
                lock.unlock();
            }
        }
    }

    private static synchronized void answer(String number, String answer) {
        Instant now = Instant.now();
        long micros = now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
        OUT.println(number + " " + micros + " " + answer);
        OUT.flush();
    }
}
