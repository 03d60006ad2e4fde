//! The page of the book shows the tables, and all pairs of marks that can be reached follow the rules of the page.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use super::table::{ROWS, RULES};
use super::{Flags, Step};

const PAGE: &str = "../../docs/src/marks.md";
const BEGIN: &str = "<!-- Generated from crates/burn-mx-core/src/tensor/marks/table.rs -->\n";
const END: &str = "<!-- End of what is generated -->\n";

fn names(marks: Flags) -> Vec<String> {
    let name = |(name, _)| format!("`{name}`");
    marks.iter_names().map(name).collect()
}

fn table(head: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let columns = head.matches('|').count() - 1;
    let rows = rows.map(|cells| format!("| {} |\n", cells.join(" | ")));
    format!(
        "{head}\n|{}\n{}\n",
        " --- |".repeat(columns),
        rows.collect::<String>()
    )
}

fn table_of_rules() -> String {
    let rows = RULES.iter().flat_map(|(name, doc, rule)| {
        rule.steps.iter().enumerate().map(move |(index, step)| {
            let conditions = [
                ("has", step.has, " or "),
                ("lacks", step.lacks, " and "),
                ("other has", step.other_has, " or "),
                ("other lacks", step.other_lacks, " and "),
            ];
            let named = conditions
                .into_iter()
                .filter(|(_, marks, _)| !marks.is_empty());
            let named =
                named.map(|(what, marks, and)| format!("{what} {}", names(marks).join(and)));
            let copied = names(step.copies)
                .into_iter()
                .map(|name| format!("{name} of the other"));
            let gained = names(step.gains).into_iter().chain(copied);
            vec![
                if index == 0 {
                    format!("`{name}`")
                } else {
                    String::new()
                },
                if index == 0 {
                    doc.trim().to_owned()
                } else {
                    String::new()
                },
                named.collect::<Vec<_>>().join("; "),
                names(step.loses).join(", "),
                gained.collect::<Vec<_>>().join(", "),
            ]
        })
    });
    table(
        "| rule | what happens | if the tensor | loses | gains |",
        rows,
    )
}

fn table_of_ops() -> String {
    let rows = ROWS.iter().map(|row| {
        let gains = names(row.gains).join(", ");
        let cells = [(row.any, " and "), (row.all, " and "), (row.none, " or ")];
        let cells = cells.map(|(marks, and)| names(marks).join(and));
        [vec![gains], cells.to_vec()].concat()
    });
    table(
        "| the result has | if an operand has | if all operands have | if no operand has |",
        rows,
    )
}

/// The kinds of tensors, as marks.
const KINDS: [(&str, Flags); 5] = [
    ("constant", Flags::CONSTANT),
    ("data", Flags::empty()),
    (
        "parameter",
        Flags::WEIGHT
            .union(Flags::PARAMETER)
            .union(Flags::OF_PARAMETERS),
    ),
    ("of parameters", Flags::OF_PARAMETERS),
    ("activation", Flags::ACTIVATION),
];

/// The kind of a tensor with these marks: marks about the optimizer, exemptions and uses are none of the kind.
fn kind_of(marks: Flags) -> &'static str {
    match () {
        () if marks.contains(Flags::CONSTANT) => "constant",
        () if marks.contains(Flags::ACTIVATION) => "activation",
        () if marks.contains(Flags::OF_PARAMETERS) => "of parameters",
        () => "data",
    }
}

fn table_of_kinds() -> String {
    let head = KINDS.map(|(name, _)| name).join(" | ");
    let rows = KINDS.into_iter().map(|(name, own)| {
        let results = KINDS.map(|(_, other)| kind_of(Flags::of_result([own, other].into_iter())));
        [
            vec![format!("**{name}**")],
            results.map(str::to_owned).to_vec(),
        ]
        .concat()
    });
    table(&format!("| op of a … and a … | {head} |"), rows)
}

#[test]
fn the_page_shows_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).expect("the page is there");
    let (head, rest) = page.split_once(BEGIN).expect("the tables begin");
    let (_, tail) = rest.split_once(END).expect("the tables end");
    let tables = [
        "### Kinds\n\n".to_owned() + &table_of_kinds(),
        "### Ops\n\n".to_owned() + &table_of_ops(),
        "### Rules\n\n".to_owned() + &table_of_rules(),
    ];
    let expected = format!("{head}{BEGIN}\n{}{END}{tail}", tables.concat());
    if env::var_os("MX_WRITE_BOOK").is_some() {
        fs::write(&path, &expected).expect("the page is written");
        return;
    }
    assert!(
        page == expected,
        "{PAGE} is out of date: run `MX_WRITE_BOOK=1 cargo test --release -p burn-mx-core --lib marks`"
    );
    for name in names(Flags::all()) {
        assert!(head.contains(&name), "{PAGE} does not explain {name}");
    }
}

/// Marks that exist while an op reads its operands, and not on tensors.
const OF_OPERANDS: Flags = Flags::OF_DATA
    .union(Flags::OF_OPTIMIZER)
    .union(Flags::OF_MODEL)
    .union(Flags::SCOPED);

/// The marks that an op's result depends on.
const READ: Flags = Flags::OPTIMIZER
    .union(Flags::EXEMPT)
    .union(Flags::CONSTANT)
    .union(Flags::ORIGIN)
    .union(Flags::WEIGHT);

/// These sets of marks without the marks that are not among `some`.
fn read(sets: &BTreeSet<u32>, some: Flags) -> BTreeSet<u32> {
    sets.iter().map(|bits| bits & some.bits()).collect()
}

/// All marks that a program can reach. The first tensor is created from numbers. All rules apply, with each other
/// tensor as the rule's other, and all ops on one and on two tensors, in both scopes.
fn reachable() -> BTreeSet<u32> {
    let of_operands = ["OPERAND", "CONSTANT_BESIDE_OTHERS"];
    let rules = RULES
        .iter()
        .filter(|(name, ..)| !of_operands.contains(name));
    let mut found = BTreeSet::from([Flags::empty().bits()]);
    loop {
        let mut reached = found.clone();
        for (_, _, rule) in rules.clone() {
            let of_other = |step: &Step| step.other_has | step.other_lacks | step.copies;
            let others = rule
                .steps
                .iter()
                .map(of_other)
                .fold(Flags::empty(), Flags::union);
            for other in read(&found, others)
                .into_iter()
                .map(Flags::from_bits_retain)
            {
                let after = |bits: &u32| Flags::from_bits_retain(*bits).after_with(*rule, other);
                reached.extend(found.iter().map(after).map(|marks| marks.bits()));
            }
        }
        let operands = read(&found, READ);
        for a in operands.iter().map(|bits| Flags::from_bits_retain(*bits)) {
            for b in operands.iter().map(|bits| Flags::from_bits_retain(*bits)) {
                for scope in [Flags::empty(), Flags::SCOPED] {
                    reached.insert(Flags::of_result([a | scope, b | scope].into_iter()).bits());
                }
            }
        }
        if reached == found {
            return found;
        }
        found = reached;
    }
}

/// Checks an op's result against the words of the page, for operands whose specs emulate activations alone.
fn assert_as_described(operands: &[Flags], result: Flags) {
    let constants_alone = operands.iter().all(|marks| marks.contains(Flags::CONSTANT));
    let counts = |marks: &&Flags| constants_alone || !marks.contains(Flags::CONSTANT);
    let counting: Vec<Flags> = operands.iter().filter(counts).copied().collect();
    let has = |mark: Flags| move |marks: &Flags| marks.contains(mark);
    let is = |mark: Flags| result.contains(mark);

    for exemption in [Flags::FULL_PRECISION, Flags::LOSS] {
        assert_eq!(
            is(exemption),
            operands.iter().any(has(exemption)),
            "{operands:?}"
        );
    }
    let of_parameters = has(Flags::OF_PARAMETERS);
    let mut origins = counting
        .iter()
        .map(|marks| marks.intersection(Flags::ORIGIN));
    let first = origins.next().expect("an operand counts");
    match constants_alone || origins.all(|origin| origin == first) {
        // Operands of one kind make a result of their kind.
        true if constants_alone => assert!(is(Flags::CONSTANT), "{operands:?}"),
        true => assert_eq!(
            result & (Flags::ORIGIN | Flags::CONSTANT),
            first,
            "{operands:?}"
        ),
        // An activation makes an activation of everything, and so do data and parameters together.
        false => assert!(is(Flags::ACTIVATION), "{operands:?}"),
    }
    let is_weight = counting.iter().any(has(Flags::WEIGHT)) && counting.iter().all(of_parameters);
    assert!(
        constants_alone || is(Flags::WEIGHT) == is_weight,
        "{operands:?}"
    );
    let no_optimizer = |marks: &Flags| !marks.intersects(Flags::OPTIMIZER);
    let of_model = |marks: &Flags| marks.contains(Flags::WEIGHT) && no_optimizer(marks);
    let by_gradient = operands.iter().any(has(Flags::OPTIMIZER_GRADIENT));
    let by_optimizer = by_gradient || !counting.iter().any(no_optimizer);
    let expected = by_optimizer && !operands.iter().any(of_model);
    assert_eq!(
        result.intersects(Flags::OPTIMIZER),
        expected,
        "{operands:?}"
    );
}

#[test]
fn all_pairs_of_reachable_marks() {
    let scoped =
        |operands: &[Flags]| Flags::of_result(operands.iter().map(|marks| *marks | Flags::SCOPED));
    let reached = reachable();
    let read = read(&reached, READ).into_iter();
    let read: Vec<Flags> = read.map(Flags::from_bits_retain).collect();
    assert!(
        reached.len() > 6000 && read.len() > 150,
        "{} {}",
        reached.len(),
        read.len()
    );
    for marks in reached.into_iter().map(Flags::from_bits_retain) {
        assert!(!marks.intersects(OF_OPERANDS), "{marks:?}");
        // No tensor is both.
        assert!(!marks.contains(Flags::ORIGIN), "{marks:?}");
        // Marks about specs, parameters and their gradients say nothing about an op.
        for other in &read {
            assert_eq!(
                scoped(&[marks, *other]),
                scoped(&[marks & READ, *other]),
                "{marks:?}"
            );
        }
    }
    for a in &read {
        assert_as_described(&[*a], scoped(&[*a]));
        for b in &read {
            let result = scoped(&[*a, *b]);
            assert_as_described(&[*a, *b], result);
            assert_eq!(result, scoped(&[*b, *a]), "{a:?} {b:?}");
            // Scope decides about weights alone.
            let unscoped = Flags::of_result([*a, *b].into_iter());
            assert_eq!(unscoped, result - Flags::WEIGHT, "{a:?} {b:?}");
            for c in &read {
                assert_as_described(&[*a, *b, *c], scoped(&[*a, *b, *c]));
            }
        }
    }
}
