//! The public types: a lock, its guard, owners, and what can be seen of a lock from outside.

mod fair;
mod guard;
mod handle;
mod info;
mod owner;
mod reentrant;

pub use fair::FairLock;
pub use guard::{Guard, Released};
pub use info::{Holder, Info, Waiter};
pub use owner::Owner;
pub use reentrant::Lock;
