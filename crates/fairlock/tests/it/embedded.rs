//! What only the embedded store can suffer: killed processes, a directory that goes away, a full
//! disk, rights, foreign files, a process that stands still at the wrong moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fairlock::{Client, ConnectError, LockError, LostCause, StoreErrorKind};
use fairlock_testkit::{Scratch, Seed};

use crate::actor::Actor;
use crate::patience::{Stopwatch, eventually, ms, pass, secs, soon};

fn url(scratch: &Scratch) -> String {
    format!("file:{}", scratch.path().join("store").display())
}

/// The folder of this boot; there is one as soon as there is a client.
fn boot_folder(scratch: &Scratch) -> PathBuf {
    let mut folders = fs::read_dir(scratch.path().join("store")).unwrap();
    folders.next().unwrap().unwrap().path()
}

/// The folders with the locks.
fn shards(scratch: &Scratch) -> Vec<PathBuf> {
    let folder = boot_folder(scratch);
    let data = fs::read_to_string(folder.join("data")).unwrap();
    let shards = fs::read_dir(folder.join(data)).unwrap();
    shards.map(|shard| shard.unwrap().path()).collect()
}

fn data_file(scratch: &Scratch) -> PathBuf {
    shards(scratch)[0].join("data.mdb")
}

async fn refusal(url: &str) -> StoreErrorKind {
    match Client::connect(url).await.expect_err("this store cannot be used") {
        ConnectError::Store(error) => error.kind().clone(),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_passed_over_at_once() {
    let scratch = Scratch::new();
    let client = Client::connect(&url(&scratch)).await.unwrap();
    for _ in 0..5 {
        let mut holder = Actor::start(&url(&scratch), secs(600));
        assert!(holder.ask("lock a").starts_with("held"));
        let lock = client.lock("a");
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        pass(ms(50)).await;
        assert!(!waiting.is_finished());
        holder.kill();
        let watch = Stopwatch::start();
        soon("the lock of a dead process is free", waiting).await.unwrap().release().await.unwrap();
        assert!(watch.elapsed() < secs(1), "took {:?}", watch.elapsed());
        // And for one who comes later, with nobody waiting at the time of the death.
        let mut holder = Actor::start(&url(&scratch), secs(600));
        assert!(holder.ask("lock a").starts_with("held"));
        holder.kill();
        client.lock("a").try_lock().await.unwrap().expect("free").release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_inside_and_around_transactions_harm_nobody() {
    let seed = Seed::from_env_or_random("FAIRLOCK_SEED");
    let _announcement = seed.announce("kills_inside_and_around_transactions_harm_nobody");
    let mut rng = seed.rng();
    let scratch = Scratch::new();
    let counter = scratch.path().join("counter");
    let client = Client::connect(&url(&scratch)).await.unwrap();
    for _ in 0..25 {
        fs::write(&counter, "0").unwrap();
        let mut busy = Actor::start(&url(&scratch), secs(600));
        busy.tell(&format!("loop a {} 1000000", counter.display()));
        pass(ms(20 + rng.below(30))).await;
        busy.kill();
        let guard = soon("the store works", client.lock("a").lock()).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_processes_count_without_losing_one() {
    let scratch = Scratch::new();
    let counter = scratch.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let mut actors: Vec<Actor> = (0..8).map(|_| Actor::start(&url(&scratch), secs(600))).collect();
    for actor in &mut actors {
        actor.tell(&format!("loop a {} 200", counter.display()));
    }
    for actor in &mut actors {
        assert_eq!(actor.answer(), "done");
    }
    assert_eq!(fs::read_to_string(&counter).unwrap(), "1600");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_directory_takes_its_locks_along_and_is_made_anew() {
    let scratch = Scratch::new();
    let alice = Client::builder(&url(&scratch)).lease(ms(900)).connect().await.unwrap();
    let bob = Client::connect(&url(&scratch)).await.unwrap();
    let guard = alice.lock("a").lock().await.unwrap();
    fs::remove_dir_all(scratch.path().join("store")).unwrap();
    let lost = soon("the holder is told", guard.lost()).await;
    assert_eq!(lost.cause, LostCause::Gone);
    let next = soon("others go on", bob.lock("a").lock()).await.unwrap();
    assert!(alice.lock("a").try_lock().await.unwrap().is_none(), "in the same new store");
    assert!(next.token() > guard.token());
    assert!(guard.release().await.is_err());
    assert!(next.is_held(), "a late release frees nobody else's lock");
    let waiting = alice.lock("a");
    let waiting = tokio::spawn(async move { waiting.lock().await.map(drop) });
    next.release().await.unwrap();
    soon("wake-ups work in the new store", waiting).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_was_moved_away_is_made_anew() {
    let scratch = Scratch::new();
    let client = Client::connect(&url(&scratch)).await.unwrap();
    client.lock("a").lock().await.unwrap().release().await.unwrap();
    fs::rename(scratch.path().join("store"), scratch.path().join("elsewhere")).unwrap();
    // In another process: it opens what is at the path now.
    let mut other = Actor::start(&url(&scratch), secs(30));
    assert!(other.ask("lock a").starts_with("held"));
    eventually("both are in the same new store", async || {
        client.lock("a").try_lock().await.unwrap().is_none()
    })
    .await;
    assert_eq!(other.ask("release"), "released");
    client.lock("a").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stands_still_inside_is_named() {
    let scratch = Scratch::new();
    let client = Client::builder(&url(&scratch)).timeout(ms(1_500)).connect().await.unwrap();
    let held = client.lock("held").lock().await.unwrap();
    // Somebody who has gone through the gates and does not come out.
    let mut sleeper = Command::new("env");
    for shard in shards(&scratch) {
        sleeper.args(["flock", "--no-fork"]).arg(shard.join("gate"));
    }
    let mut sleeper = sleeper.args(["sleep", "60"]).stdout(Stdio::null()).spawn().unwrap();
    let mut message = String::new();
    eventually("the gate is shut", async || {
        let error = client.lock("a").try_lock().await;
        message = error.err().map(|error| error.to_string()).unwrap_or_default();
        !message.is_empty()
    })
    .await;
    let wanted = format!("store stuck: pid {}", sleeper.id());
    assert!(message.contains(&wanted), "{message}");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    soon("it goes on", client.lock("a").lock()).await.unwrap().release().await.unwrap();
    assert!(held.is_held(), "long leases outlast a short stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_and_damaged_files_are_refused_and_left_alone() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("garbage", |data| fs::write(data, vec![0xa5; 40_960]).unwrap()),
        ("cut short", |data| {
            fs::File::options().write(true).open(data).unwrap().set_len(5_000).unwrap()
        }),
        ("cut after its head", |data| {
            fs::File::options().write(true).open(data).unwrap().set_len(8_192).unwrap();
        }),
        ("a text", |data| fs::write(data, "not a store").unwrap()),
    ];
    for (what, damage) in damages {
        let scratch = Scratch::new();
        // In another process: nobody has it open when it is damaged.
        let mut writer = Actor::start(&url(&scratch), secs(30));
        assert!(writer.ask("lock a").starts_with("held"));
        assert_eq!(writer.ask("release"), "released");
        writer.kill();
        damage(&data_file(&scratch));
        let before = fs::read(data_file(&scratch)).unwrap();
        let kind = refusal(&url(&scratch)).await;
        assert!(matches!(kind, StoreErrorKind::Damaged { .. }), "{what}: {kind:?}");
        assert!(fs::read(data_file(&scratch)).unwrap() == before, "{what}: it was changed");
    }
    let scratch = Scratch::new();
    fs::write(scratch.path().join("store"), "a file").unwrap();
    let kind = refusal(&url(&scratch)).await;
    assert!(matches!(kind, StoreErrorKind::NotAStore { .. }), "{kind:?}");
}

#[test]
fn somebody_elses_directory_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    drop(fairlock::blocking::Client::connect(&url(&scratch)).unwrap());
    let mode = fs::metadata(scratch.path().join("store")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let url = url(&scratch);
    let store = scratch.path().join("store");
    let refused = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            let nobody = Some(rustix::process::Uid::from_raw(65_534));
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        } else {
            fs::set_permissions(&store, fs::Permissions::from_mode(0o000)).unwrap();
        }
        let refused = fairlock::blocking::Client::connect(&url).map(drop);
        fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).ok();
        refused
    });
    let error = refused.join().unwrap().unwrap_err();
    let ConnectError::Store(error) = error else { panic!("{error}") };
    assert!(matches!(error.kind(), StoreErrorKind::NoRights { .. }), "{error}");
}

/// A process with a small disk of its own at `place`, of `options`.
fn on_a_disk(place: &Path, options: &str) -> Command {
    let script = format!("mount -t tmpfs -o {options} tmpfs {} && exec \"$@\"", place.display());
    let mut launcher = Command::new("unshare");
    launcher.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    launcher
}

#[test]
fn a_full_disk_is_said_so_and_loses_nothing() {
    let scratch = Scratch::new();
    let place = scratch.path().join("disk");
    fs::create_dir(&place).unwrap();
    let url = format!("file:{}", place.join("store").display());
    let mut actor = Actor::start_through(on_a_disk(&place, "size=512k"), &url, secs(30));
    assert!(actor.ask("lock held").starts_with("held"));
    let filler = place.join("filler");
    assert!(actor.ask(&format!("fill {}", filler.display())).starts_with("full"));
    // New pages are needed sooner or later; then the error is clear.
    let mut refused = String::new();
    for number in 0..2_000 {
        refused = actor.ask(&format!("keep lock-{number}"));
        if refused != "kept" {
            break;
        }
    }
    assert!(refused.contains("no space left on the disk"), "{refused}");
    assert_eq!(actor.ask("is_held"), "true");
    assert_eq!(actor.ask(&format!("remove {}", filler.display())), "removed");
    assert_eq!(actor.ask("keep after"), "kept");
    assert_eq!(actor.ask("release"), "released");
}

#[test]
fn a_process_that_may_not_write_large_files_can_lock() {
    let scratch = Scratch::new();
    let mut launcher = Command::new("sh");
    launcher.args(["-c", "ulimit -f 2048 && exec \"$@\"", "sh"]);
    let mut modest = Actor::start_through(launcher, &url(&scratch), secs(30));
    let mut other = Actor::start(&url(&scratch), secs(30));
    for round in 0..20 {
        let name = format!("lock-{}", round % 7);
        assert!(modest.ask(&format!("lock {name}")).starts_with("held"));
        assert_eq!(modest.ask("release"), "released");
        assert!(other.ask(&format!("lock {name}")).starts_with("held"));
        assert_eq!(other.ask("release"), "released");
    }
}

#[test]
fn a_read_only_file_system_is_refused() {
    let scratch = Scratch::new();
    let place = scratch.path().join("disk");
    fs::create_dir(&place).unwrap();
    let url = format!("file:{}", place.join("store").display());
    let actor = Actor::try_start_through(on_a_disk(&place, "ro"), &url);
    assert!(actor.contains("read-only"), "{actor}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_locks_and_long_names() {
    let scratch = Scratch::new();
    let client = Client::connect(&url(&scratch)).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..1_000 {
        guards.push(client.lock(format!("lock {number}")).lock().await.unwrap());
    }
    for name in [vec![0, 255, 10], vec![b'x'; 65_536]] {
        guards.push(client.lock(&name).lock().await.unwrap());
        let other = Client::connect(&url(&scratch)).await.unwrap();
        assert!(other.lock(&name).try_lock().await.unwrap().is_none());
        let lock = other.lock(&name);
        let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
        pass(ms(50)).await;
        guards.pop().unwrap().release().await.unwrap();
        soon("woken, whatever the name", waiting).await.unwrap().unwrap();
    }
    let error = client.lock("").lock().await.unwrap_err();
    assert!(matches!(error, LockError::Name(_)));
    assert!(guards.iter().all(|guard| guard.is_held()));
    for guard in guards {
        guard.release().await.unwrap();
    }
}
