//! Names: any bytes, one to 65,536 of them.

use fairlock::{InvalidName, LockError};

use crate::patience::{soon, start};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    any_bytes_are_a_name,
    names_that_look_alike_are_different,
    an_empty_name_is_refused,
    a_name_that_is_too_long_is_refused,
);

async fn any_bytes_are_a_name(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let names: [Vec<u8>; 12] = [
        b"a".to_vec(),
        vec![0],
        vec![0xff, 0xfe, 0x00, 0x80],
        (0..=255).collect(),
        "замок 🔒".into(),
        b"two\r\nlines\n".to_vec(),
        b" ".to_vec(),
        b"{shop}:42".to_vec(),
        b"{".to_vec(),
        b"}{".to_vec(),
        b"*?[a-z]\\\"'".to_vec(),
        vec![b'x'; 65_536],
    ];
    for name in names {
        let shown = name[..name.len().min(20)].escape_ascii().to_string();
        let guard = alice.lock(&name).lock().await.unwrap();
        assert_eq!(guard.name().as_bytes(), name, "{shown}");
        assert!(bob.lock(&name).try_lock().await.unwrap().is_none(), "{shown}");
        if let Some(server) = store.server() {
            let kind: String = server.query(&[b"TYPE", name.as_slice()]);
            assert_eq!(kind, "hash", "the name is the key: {shown}");
        }
        let waiting = bob.lock(&name);
        let waiting = start(async move { waiting.lock().await.unwrap() }).await;
        guard.release().await.unwrap();
        let guard = soon(&shown, waiting).await.unwrap();
        let info = alice.lock(&name).inspect().await.unwrap();
        assert_eq!(info.owner.as_ref(), Some(guard.owner_id()), "{shown}");
        assert!(info.holder.is_some(), "{shown}");
        guard.release().await.unwrap();
        assert!(!alice.lock(&name).is_locked().await.unwrap(), "{shown}");
    }
    if let Some(server) = store.server() {
        assert_eq!(server.keys_without_ttl(), [""; 0]);
    }
}

async fn names_that_look_alike_are_different(store: Store) {
    let client = store.client().await;
    let mut guards = Vec::new();
    for name in [&b"a"[..], b"a\0", b"A", b"a\n", b"\xff", b"\xfe", "\u{fffd}".as_bytes()] {
        let guard = client.lock(name).try_lock().await.unwrap();
        guards.push(guard.unwrap_or_else(|| panic!("{} is taken", name.escape_ascii())));
    }
    assert!(guards.iter().all(|guard| guard.is_held()));
}

async fn an_empty_name_is_refused(store: Store) {
    refused(store, b"", InvalidName::Empty, "empty").await;
}

async fn a_name_that_is_too_long_is_refused(store: Store) {
    let name = vec![b'x'; 65_537];
    refused(store, &name, InvalidName::TooLong { length: 65_537 }, "65,536").await;
}

/// Nothing works with such a name, and nothing happens.
async fn refused(store: Store, name: &[u8], why: InvalidName, says: &str) {
    let client = store.client().await;
    let (lock, owner) = (client.lock(name), client.owner());
    let outcomes = [
        lock.lock().await.map(drop),
        lock.try_lock().await.map(drop),
        lock.lock_as(&owner).await.map(drop),
        lock.try_lock_as(&owner).await.map(drop),
        lock.inspect().await.map(drop),
        lock.is_locked().await.map(drop),
        lock.force_unlock().await.map(drop),
    ];
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(matches!(&error, LockError::Name(reason) if *reason == why), "{error}");
    }
    if let Some(server) = store.server() {
        assert_eq!(server.keys(), [""; 0]);
    }
}
