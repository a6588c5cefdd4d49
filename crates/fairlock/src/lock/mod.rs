//! The public types: a lock, its guard, owners, and what can be seen of a lock from outside.

mod guard;
mod info;
mod owner;
mod reentrant;

pub use guard::{Guard, Released};
pub use info::{Holder, Info};
pub use owner::Owner;
pub use reentrant::Lock;
