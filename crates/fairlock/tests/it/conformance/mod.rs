//! What every engine does, written once.

mod basics;
mod blocking;
mod closing;
mod fair;
mod leases;
mod line;
mod load;
mod loss;
mod names;
mod ownership;
mod pins;
pub(crate) mod redisson;
mod reentry;
mod virtual_time;
mod waiting;
mod watchdog;
