//! `catalog.kind = "static"`: sandboxes from the configuration, which always run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arc_swap::ArcSwap;

use crate::{
    sandbox::ports::{Catalog, CatalogError, Located},
    types::{Node, Placement, Reason, SandboxId},
};

/// A fixed list of sandboxes and the machines that run them.
#[derive(Debug, Default)]
pub struct FixedCatalog {
    nodes: ArcSwap<BTreeMap<SandboxId, Node>>,
}

impl FixedCatalog {
    /// A catalog of these sandboxes and no others.
    pub fn new(nodes: BTreeMap<SandboxId, Node>) -> Self {
        Self { nodes: ArcSwap::from_pointee(nodes) }
    }

    /// A catalog of these from now on. Returns the sandboxes that came, went or moved.
    pub fn replace(&self, nodes: BTreeMap<SandboxId, Node>) -> Vec<SandboxId> {
        let nodes = Arc::new(nodes);
        let former = self.nodes.swap(nodes.clone());
        let differ = |id: &&SandboxId| former.get(*id) != nodes.get(*id);
        let all: BTreeSet<_> = former.keys().chain(nodes.keys()).collect();
        all.into_iter().filter(differ).cloned().collect()
    }
}

impl Catalog for FixedCatalog {
    async fn locate(&self, id: &SandboxId) -> Result<Located, CatalogError> {
        Ok(match self.nodes.load().get(id) {
            Some(node) => {
                Located::Running(Placement { node: Some(node.clone()), execution: None, access: None, until: None })
            }
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

    #[test]
    fn what_a_replacement_changed_is_told() {
        let nodes = |pairs: &[(&str, &str)]| -> BTreeMap<_, _> {
            let parsed = |(id, node): &(&str, &str)| Some((SandboxId::new(id)?, Node::new(node)?));
            pairs.iter().filter_map(parsed).collect()
        };
        let catalog = FixedCatalog::new(nodes(&[("stays", "10.0.0.1"), ("moves", "10.0.0.1"), ("goes", "10.0.0.1")]));
        let changed = catalog.replace(nodes(&[("stays", "10.0.0.1"), ("moves", "10.0.0.2"), ("comes", "10.0.0.1")]));
        assert_eq!(changed.iter().map(SandboxId::as_str).collect::<Vec<_>>(), ["comes", "goes", "moves"]);
    }
}
