//! What can go wrong between a client and its store, and what must still be true then.

mod connections;
mod costs;
mod errors;
mod gave_up;
mod late_request;
mod lost_reply;
mod other_servers;
mod outages;
mod processes;
pub(crate) mod scene;
