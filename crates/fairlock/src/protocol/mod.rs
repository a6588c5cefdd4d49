//! The protocol, pure: operations and replies, the model of the locks, and the decisions of a
//! client that waits ([`line`]) and of one that holds ([`renewal`]).
//!
//! Nothing in here does I/O, reads a clock or draws a random number: `now` is an argument. That is
//! what lets the same code be an engine, the oracle of the Lua scripts and the subject of a
//! simulation. `cargo xtask check` keeps it so.

#[cfg(test)]
mod checked;
pub(crate) mod line;
pub(crate) mod model;
pub(crate) mod op;
pub(crate) mod pattern;
pub(crate) mod renewal;
pub(crate) mod seat;
pub(crate) mod seats;
