//! Layers that engines fuse, by their names.

use microscaling::{FusedGroup, FusedLayers, FusedNames};

#[test]
fn groups_of_a_model() {
    let modules = [
        "lm_head",
        "m.layers.1.self_attn.v_proj",
        "m.layers.1.self_attn.q_proj",
        "m.layers.1.self_attn.k_proj",
        "m.layers.1.self_attn.o_proj",
        "m.layers.1.mlp.experts.7.up_proj",
        "m.layers.1.mlp.experts.7.gate_proj",
        "m.layers.1.mlp.experts.8.gate_proj",
        "m.layers.2.self_attn.qkv_proj",
        "m.layers.2.self_attn.not_q_proj",
        "m.layers.2.self_attn.k_proj",
        "wq",
        "wk",
    ];
    let groups = FusedLayers::default().groups(modules);
    let texts: Vec<String> = groups.iter().map(FusedGroup::to_string).collect();
    assert_eq!(
        texts,
        [
            "{wq,wk}",
            "m.layers.1.mlp.experts.7.{gate_proj,up_proj}",
            "m.layers.1.self_attn.{q_proj,k_proj,v_proj}",
        ]
    );
    assert_eq!(FusedLayers::NONE.groups(modules), []);
    let own = FusedLayers::new(["self_attn.k_proj, mlp.up".parse().unwrap()]).unwrap();
    let groups = own.groups(["a.mlp.up", "a.self_attn.k_proj", "a.self_attn.q_proj"]);
    assert_eq!(
        groups,
        vec![FusedGroup {
            parent: "a".into(),
            members: vec!["a.self_attn.k_proj".into(), "a.mlp.up".into()],
        }]
    );
    assert_eq!(groups[0].to_string(), "a.{self_attn.k_proj,mlp.up}");
}

#[test]
fn names_that_are_no_group() {
    for (text, reason) in [
        ("", "empty"),
        ("q,,k", "empty"),
        ("q,.k", "empty"),
        ("q", "one name"),
        ("q,k,q", "`q` occurs twice"),
        ("q,a.q", "`a.q` and `q` are names of one layer"),
    ] {
        let error = text.parse::<FusedNames>().unwrap_err().to_string();
        assert!(
            error.contains(reason) && error.contains("q_proj,k_proj,v_proj"),
            "{error}"
        );
    }
    let kinds = ["q,k", "v,k"].map(|names| names.parse().unwrap());
    let error = FusedLayers::new(kinds).unwrap_err().to_string();
    assert!(error.contains("`k` occurs twice"), "{error}");
    let kinds = ["q,k", "attn.k,attn.v"].map(|names| names.parse().unwrap());
    let error = FusedLayers::new(kinds).unwrap_err().to_string();
    let both = "`attn.k` and `k` are names of one layer";
    assert!(error.contains(both), "{error}");
    // Other words that end alike.
    assert!(FusedLayers::new(["q,k", "xq,xk"].map(|names| names.parse().unwrap())).is_ok());
}
