//! The fair lock where it is hard to be fair: many waiters, dead ones, lost messages, spoilt keys.

mod cancel;
mod costs;
mod death;
mod fifo;
mod leaving;
mod loss;
mod outages;
mod poison;
mod property;
mod queue;
