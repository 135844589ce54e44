//! Finds a request's class in a table of keys.

use super::table::Table;
use crate::head::RequestHead;
use crate::key::by::{Finding, How};
use crate::key::parts::KeyRef;
use std::fmt;
use std::sync::Arc;

/// A way to find a request's key, and the table with each key's class.
pub(crate) struct Listed {
    how: How,
    table: Arc<Table>,
    /// The table's keys do not include the name of a limit, so this name is empty.
    name: Arc<str>,
}

impl Listed {
    pub(super) fn new(how: How, table: Arc<Table>) -> Self {
        Self { how, table, name: Arc::from("") }
    }

    pub(super) fn class(&self, head: RequestHead<'_>) -> Option<&str> {
        let mut key = KeyRef::new(&self.name);
        match self.how.find(head, &mut key) {
            Finding::Found => self.table.class(key.parts()),
            Finding::Missing | Finding::Ambiguous => None,
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.table.names()
    }
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.how, self.table)
    }
}
