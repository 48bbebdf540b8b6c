//! What it costs to find a sandbox among all that are known: nanoseconds, no sockets. `cargo bench --bench table`.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use client_proxy::{sandbox::bench::Table, types::SandboxId};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

fn id(number: usize) -> SandboxId {
    SandboxId::new(&format!("i7d1k2m9x0p4q8{number}")).expect("an id")
}

fn filled(count: usize) -> (Table, Vec<SandboxId>) {
    let table = Table::new();
    let ids: Vec<_> = (0..count).map(id).collect();
    for id in &ids {
        table.settle(id);
        assert!(table.hit(id).is_some(), "{id}");
    }
    (table, ids)
}

/// One hit after the other, over all ids.
fn hits<'a>(table: &'a Table, ids: &'a [SandboxId]) -> impl FnMut() + 'a {
    let mut ids = ids.iter().cycle();
    move || {
        black_box(ids.next().and_then(|id| table.hit(id)));
    }
}

fn hit(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("table/hit");
    for count in [1, 100_000] {
        let (table, ids) = filled(count);
        group.bench_function(format!("{count} entries"), |bencher| bencher.iter(hits(&table, &ids)));
        // Another worker asks for the same sandboxes as fast as it can.
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut hit = hits(&table, &ids);
                while !over.load(Relaxed) {
                    hit();
                }
            });
            group.bench_function(format!("{count} entries, 2 threads"), |bencher| bencher.iter(hits(&table, &ids)));
            over.store(true, Relaxed);
        });
    }
}

fn miss(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("table/miss");
    for count in [1, 100_000] {
        let (table, ids) = filled(count);
        let mut next = ids.len();
        // The table grows as the benchmark runs, by as many as it counts.
        let mut new = || {
            next += 1;
            id(next)
        };
        group.bench_function(format!("insert into {count}"), |bencher| {
            bencher.iter_batched(&mut new, |id| assert!(table.miss(&id)), BatchSize::SmallInput);
        });
    }
}

criterion_group!(benches, hit, miss);
criterion_main!(benches);
