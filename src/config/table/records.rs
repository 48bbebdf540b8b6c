//! Lists of tables, such as `certificates = [{ cert = "a.pem", key = "a.key" }]`.

use super::{Table, join, shown};
use crate::config::{
    fault::{Place, Wrong},
    kinds,
    tree::{Entries, Item, Value},
};

impl Table<'_> {
    /// Tables that have just these keys, each a string. `parse` tells what is wrong of which.
    pub(crate) fn records<const N: usize, T>(
        &mut self,
        key: &'static str,
        fields: [&'static str; N],
        parse: impl Fn(&[String; N]) -> Result<T, Vec<(usize, Wrong)>>,
    ) -> Vec<T> {
        let path = self.path_of(key);
        let all = fields.map(|field| format!("{field} = \"…\"")).join(", ");
        let example = format!("write tables in brackets: [{{ {all} }}]");
        let item = self.take(key);
        let place = item.as_ref().map_or(Place::Unset, |item| item.place.clone());
        let (mut values, mut records) = (Vec::new(), Vec::new());
        match item {
            None => {}
            Some(Item { value: Value::List(items), .. }) => {
                for (at, item) in items.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    let Value::Table(entries) = &item.value else {
                        self.reading.push(path, item.shown(false), &item.place, Wrong::new(item.kind(), &example));
                        continue;
                    };
                    let Some(texts) = self.fields(&path, &item.place, entries, fields) else { continue };
                    match parse(&texts) {
                        Ok(value) => values.push(value),
                        Err(wrongs) => {
                            for (at, wrong) in wrongs {
                                let place = entries.get(fields[at]).map_or(&item.place, |entry| &entry.item.place);
                                self.reading.push(join(&path, fields[at]), Some(shown(&texts[at])), place, wrong);
                            }
                        }
                    }
                    let pairs = fields.iter().zip(&texts);
                    let pairs: Vec<_> = pairs.map(|(field, text)| format!("{field} = {}", kinds::toml(text))).collect();
                    records.push(format!("{{ {} }}", pairs.join(", ")));
                }
            }
            Some(item) => self.reading.push(path, item.shown(false), &place, Wrong::new(item.kind(), example)),
        }
        let toml = format!("[{}]", records.join(", "));
        self.record(key, toml.clone(), toml, &place);
        values
    }

    /// The strings of one table, or faults: whatever is not there, no string, or too much.
    fn fields<const N: usize>(
        &self,
        path: &str,
        place: &Place,
        entries: &Entries,
        fields: [&'static str; N],
    ) -> Option<[String; N]> {
        let mut sound = true;
        let mut fault = |key: &str, value: Option<String>, place: &Place, wrong: Wrong| {
            sound = false;
            self.reading.push(join(path, key), value, place, wrong);
        };
        for (key, entry) in entries {
            if !fields.contains(&key.as_str()) {
                let known = format!("known here: {}", fields.join(", "));
                fault(key, None, &entry.place, Wrong::new("unknown key", known));
            }
        }
        let texts = fields.map(|field| match entries.get(field) {
            None => {
                fault(field, None, place, Wrong::new("it is missing", format!("write {field} = \"…\"")));
                String::new()
            }
            Some(entry) => self.string(&entry.item, "").unwrap_or_else(|wrong| {
                fault(field, entry.item.shown(false), &entry.item.place, wrong);
                String::new()
            }),
        });
        sound.then_some(texts)
    }
}
