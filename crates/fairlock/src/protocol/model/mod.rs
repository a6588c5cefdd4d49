//! The locks as pure functions: a state, an operation, a time, and out comes a reply.
//!
//! The model is the memory engine, and it is what the Lua scripts are tested against.

pub(crate) mod fair;
#[cfg(test)]
pub(crate) mod redisson;
pub(crate) mod reentrant;
