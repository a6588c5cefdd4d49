//! What cannot be done is refused with an error that says what to do, and nothing is changed.

mod addresses;
mod limits;
mod rights;
mod tls;
mod wrong_keys;

use std::fmt::Debug;

use fairlock::{ConnectError, LockError, ReleaseError, StoreError, StoreErrorKind};

/// The trouble with the store that an operation reports.
fn trouble<T: Debug, E: Trouble + Debug>(result: Result<T, E>) -> StoreErrorKind {
    let error = result.expect_err("the store cannot be used");
    let error = error.store().unwrap_or_else(|| panic!("no trouble with the store: {error:?}"));
    error.kind().clone()
}

trait Trouble {
    fn store(&self) -> Option<&StoreError>;
}

macro_rules! trouble_of {
    ($($error:ident),+) => {
        $(
            impl Trouble for $error {
                fn store(&self) -> Option<&StoreError> {
                    match self {
                        $error::Store(error) => Some(error),
                        _ => None,
                    }
                }
            }
        )+
    };
}

trouble_of!(ConnectError, LockError, ReleaseError);
