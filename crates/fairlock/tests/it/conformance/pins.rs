//! Promises that the types make: what may cross threads, and what may not.

use std::error::Error as StdError;
use std::fmt::Debug;

use fairlock::testing::{TestClock, TestStore};
use fairlock::{
    BootTime, Builder, Client, ConnectError, Error, Guard, Holder, Info, InvalidName, Lock,
    LockError, Lost, LostCause, Name, Options, Owner, OwnerId, ReleaseError, Released, StoreError,
    StoreErrorKind, Token, blocking,
};

#[test]
fn handles_guards_and_errors_cross_threads() {
    fn shared<T: Send + Sync + Debug + 'static>() {}
    shared::<Client>();
    shared::<Builder>();
    shared::<Lock>();
    shared::<Guard>();
    shared::<Owner>();
    shared::<Options>();
    shared::<Released>();
    shared::<Info>();
    shared::<Holder>();
    shared::<Name>();
    shared::<OwnerId>();
    shared::<Token>();
    shared::<BootTime>();
    shared::<TestStore>();
    shared::<TestClock>();
    shared::<blocking::Client>();
    shared::<blocking::Builder>();
    shared::<blocking::Lock>();

    fn error<T: StdError + Clone + Send + Sync + 'static>() {}
    error::<ConnectError>();
    error::<LockError>();
    error::<ReleaseError>();
    error::<Lost>();
    error::<InvalidName>();
    error::<StoreError>();
    error::<StoreErrorKind>();
    error::<Error>();
}

#[tokio::test]
async fn every_future_can_be_spawned() {
    fn spawnable<T>(future: T)
    where
        T: Future<Output: Send> + Send,
    {
        drop(future);
    }
    let store = TestStore::new();
    let client = store.client();
    let (lock, owner) = (client.lock("a"), client.owner());
    spawnable(lock.lock());
    spawnable(lock.try_lock());
    spawnable(lock.lock_as(&owner));
    spawnable(lock.try_lock_as(&owner));
    spawnable(lock.inspect());
    spawnable(lock.is_locked());
    spawnable(lock.force_unlock());
    let guard = lock.lock().await.unwrap();
    spawnable(guard.lost());
    spawnable(guard.run(std::future::ready(1)));
    spawnable(guard.reenter());
    spawnable(guard.release());
    spawnable(Client::connect("memory:"));
    spawnable(Client::builder("memory:").connect());
    spawnable(store.in_use());
    spawnable(store.clock().advance(std::time::Duration::ZERO));
    spawnable(client.close());
}

/// A guard of a thread belongs to that thread. This does not compile if it can be sent: then
/// both implementations apply, and which one is meant cannot be told.
#[test]
fn a_guard_of_a_thread_stays_on_it() {
    trait Told<Which> {
        fn apart() {}
    }
    impl<T> Told<()> for T {}
    struct CanBeSent;
    impl<T: Send> Told<CanBeSent> for T {}
    <blocking::Guard as Told<_>>::apart();
}

#[test]
fn any_error_fits_into_one() {
    let lost = Lost { name: "a".to_owned(), cause: LostCause::Gone };
    let errors: [Error; 3] = [
        lost.clone().into(),
        LockError::from(lost.clone()).into(),
        ReleaseError::from(lost).into(),
    ];
    for error in errors {
        assert!(error.to_string().contains("the lock \"a\" was lost"), "{error}");
    }
}
