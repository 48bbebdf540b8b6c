//! `catalog.kind = "static"`: sandboxes from the configuration, which always run.

use std::collections::BTreeMap;

use crate::{
    sandbox::ports::{Catalog, CatalogError, Located},
    types::{Node, Placement, Reason, SandboxId},
};

/// A fixed list of sandboxes and the machines that run them.
#[derive(Clone, Debug, Default)]
pub struct FixedCatalog {
    nodes: BTreeMap<SandboxId, Node>,
}

impl FixedCatalog {
    /// A catalog of these sandboxes and no others.
    pub fn new(nodes: BTreeMap<SandboxId, Node>) -> Self {
        Self { nodes }
    }
}

impl Catalog for FixedCatalog {
    async fn locate(&self, id: &SandboxId) -> Result<Located, CatalogError> {
        Ok(match self.nodes.get(id) {
            Some(node) => Located::Running(Placement { node: Some(node.clone()), execution: None, access: None }),
            None => Located::Gone(Reason::Unknown),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listed_sandboxes_run_and_others_are_unknown() {
        let id = |text| SandboxId::new(text).expect("an id");
        let node = Node::new("10.0.0.5").expect("a node");
        let catalog = FixedCatalog::new(BTreeMap::from([(id("a"), node.clone())]));
        let Ok(Located::Running(placement)) = catalog.locate(&id("a")).await else {
            panic!("it is listed");
        };
        assert_eq!(placement.node, Some(node));
        assert!(matches!(catalog.locate(&id("b")).await, Ok(Located::Gone(Reason::Unknown))));
    }
}
