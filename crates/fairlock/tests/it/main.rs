//! All integration tests of the library, in one binary.
//!
//! A behaviour is written once and runs on every engine (`stores`). Faults come through a proxy or
//! from real signals to real processes (`actor`). A server that is missing is a failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod actor;
mod cancel;
mod conformance;
mod embedded;
mod fair;
mod faults;
mod patience;
mod stores;
mod validity;
