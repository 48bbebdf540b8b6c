//! Hundreds of things that happen to sandboxes and their clients, in an order that chance made once.

use tokio::task::JoinHandle;

use crate::{
    BALANCERS, HELD, ask, begin,
    support::{
        World,
        control_plane::{Gate, Step},
        eventually, many_descriptors,
    },
};

const SANDBOXES: usize = 10;
const ACTIONS: usize = 500;

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).expect("below a usize")
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Sandboxes and clients, and what is open between them.
struct Lives {
    world: World,
    chance: Chance,
    /// What the next wake of each sandbox waits for.
    gates: Vec<Gate>,
    /// Those who wait for an answer: its status.
    here: Vec<JoinHandle<u16>>,
    left: usize,
}

impl Lives {
    async fn new(seed: u64, lines: &str) -> Self {
        many_descriptors();
        let cache = "cache.ttl = \"20ms\"\ncache.negative_ttl = \"20ms\"\n";
        let world = World::new(&format!("{BALANCERS}{cache}{lines}")).await;
        let gates = (0..SANDBOXES).map(|_| Gate::closed()).collect();
        let mut this = Self { world, chance: Chance(seed), gates, here: Vec::new(), left: 0 };
        for sandbox in 0..SANDBOXES {
            this.world.control.sandbox(&name(sandbox)).paused("127.0.0.1");
            this.settle(sandbox);
        }
        this
    }

    /// Wakes of this sandbox that are under way end, and the next will end in some way or other.
    fn settle(&mut self, sandbox: usize) {
        let ends = [
            Step::Truly,
            Step::Truly,
            Step::Truly,
            Step::Briefly,
            Step::error(403, "not yours"),
            Step::conflict(),
            Step::error(500, "not well"),
            Step::Garbage,
            Step::gone("killed"),
        ];
        let (end, gate) = (self.chance.one_of(&ends).clone(), Gate::closed());
        self.world.control.sandbox(&name(sandbox)).always_wakes(end.after(&gate));
        std::mem::replace(&mut self.gates[sandbox], gate).open();
    }

    fn arrive(&mut self) {
        let clients = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
        let (client, sandbox) = (*self.chance.one_of(&clients), name(self.chance.below(SANDBOXES)));
        let proxy = self.world.proxy.address;
        self.here.push(tokio::spawn(async move {
            let mut socket = begin(proxy, client, &sandbox).await;
            socket.message().await.head.status()
        }));
    }

    async fn leave(&mut self) {
        if self.here.is_empty() {
            return;
        }
        let one = self.here.swap_remove(self.chance.below(self.here.len()));
        one.abort();
        // Unless it was answered in the meantime.
        self.left += usize::from(one.await.is_err_and(|error| error.is_cancelled()));
    }

    async fn act(&mut self) {
        let sandbox = self.chance.below(SANDBOXES);
        match self.chance.below(100) {
            0..=59 => self.arrive(),
            60..=74 => self.leave().await,
            75..=89 => self.settle(sandbox),
            90..=96 => drop(self.world.control.sandbox(&name(sandbox)).paused("127.0.0.1")),
            _ => drop(self.world.control.sandbox(&name(sandbox)).killed()),
        }
        // In between the proxy does its part: more, or less.
        for _ in 0..self.chance.below(4) {
            self.world.proxy.count(HELD).await;
        }
    }

    /// Everything ends well at last: how often there was which answer.
    async fn end(mut self) -> Vec<(u16, usize)> {
        for (sandbox, gate) in self.gates.iter().enumerate() {
            self.world.control.sandbox(&name(sandbox)).paused("127.0.0.1").always_wakes(Step::Truly);
            gate.open();
        }
        let mut answers = std::collections::BTreeMap::new();
        for one in self.here.drain(..) {
            *answers.entry(one.await.expect("an answer")).or_default() += 1;
        }
        self.world.proxy.is_idle().await;
        for sandbox in 0..SANDBOXES {
            let asked = async || ask(self.world.proxy.address, "10.0.0.9", &name(sandbox)).await.status == 200;
            eventually(&format!("{} serves", name(sandbox)), asked).await;
        }
        self.world.proxy.is_idle().await;
        println!("{} left; {answers:?}", self.left);
        answers.into_iter().collect()
    }
}

fn name(sandbox: usize) -> String {
    format!("s{sandbox}")
}

async fn nobody_is_forgotten(seed: u64, bounds: &str, refused: bool) {
    let mut lives = Lives::new(seed, bounds).await;
    for _ in 0..ACTIONS {
        lives.act().await;
    }
    assert!(lives.left > 0, "none left while it waited");
    let answers = lives.end().await;
    let count = |status: u16| answers.iter().find(|answer| answer.0 == status).map_or(0, |answer| answer.1);
    // None but what can happen, and most of it did.
    let of = [200, 403, 409, 502, 503, 504].map(count);
    let all: usize = answers.iter().map(|answer| answer.1).sum();
    assert_eq!(of.iter().sum::<usize>(), all, "{answers:?}");
    assert!(count(200) > 0 && count(502) > 0 && count(503) > 0, "{answers:?}");
    assert!(refused || count(504) + count(409) > 0, "{answers:?}");
}

#[tokio::test]
async fn nobody_is_forgotten_whatever_happens_in_whatever_order() {
    for seed in [1, 2] {
        nobody_is_forgotten(seed, "resume.hold_timeout = \"50ms\"\n", false).await;
    }
}

#[tokio::test]
async fn nobody_is_forgotten_where_turns_and_places_are_few() {
    let bounds = "resume.max_held = 60\nresume.max_held_per_client = 20\nresume.max_concurrent = 3\n\
                  resume.release_rate = 50\nresume.hold_timeout = \"2s\"\n";
    for seed in [3, 4] {
        nobody_is_forgotten(seed, bounds, true).await;
    }
}
