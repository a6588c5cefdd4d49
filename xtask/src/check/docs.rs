//! What the documentation takes from the code is up to date.

use super::Offence;
use crate::docs::{PROTOCOL, out_of_date};
use crate::tree::Tree;

/// Finds a description of the scripts that is not what their headers say.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let offence = |(line, reason)| Offence::new(PROTOCOL, line, reason);
    out_of_date(tree).map(offence).into_iter().collect()
}
