//! The public interface of each library, as a text in `docs/api`. `make api` writes the texts. The
//! test fails if a text is stale, so that a review shows every change of the interface.
//!
//! The texts are derived from the source, on stable Rust. They contain the declarations and
//! re-exports of `lib.rs`, with their public fields, methods and implemented traits. Code generated
//! by the crate's own macros is not listed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};
use syn::{Attribute, Fields, ImplItem, Item, Type, UseTree, Visibility};

/// The libraries, each with its source.
const CRATES: [(&str, &str); 4] = [
    ("tollgate", "src"),
    ("tollgate_http", "crates/tollgate-http/src"),
    ("tollgate_wait", "crates/tollgate-wait/src"),
    ("tollgate_redis", "crates/tollgate-redis/src"),
];

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

#[test]
fn the_listings_are_of_this_interface() {
    for (name, source) in CRATES {
        let file = format!("docs/api/{name}.txt");
        let now = listing(name, &path(source).join("lib.rs"));
        if env::var_os("TOLLGATE_API").is_some_and(|what| what == "write") {
            fs::create_dir_all(path("docs/api")).unwrap();
            fs::write(path(&file), now).unwrap();
            continue;
        }
        let listed = fs::read_to_string(path(&file)).unwrap_or_default();
        let (listed, now): (Vec<&str>, Vec<&str>) = (listed.lines().collect(), now.lines().collect());
        let gone: Vec<_> = listed.iter().filter(|line| !now.contains(line)).take(20).collect();
        let new: Vec<_> = now.iter().filter(|line| !listed.contains(line)).take(20).collect();
        assert!(
            listed == now,
            "{file} is stale: run `make api` and look at what has changed\nonly in the file: {gone:#?}\n\
             only in the source: {new:#?}"
        );
    }
}

#[test]
fn the_listing_says_what_is_public() {
    let listing = listing("tollgate", &path("src/lib.rs"));
    for line in [
        "# tollgate::Limiter",
        "    pub fn check<Q>(&self, key: &Q) -> Decision",
        "# tollgate::store::Fingerprints",
        "impl FromStr for Quota {",
        "pub use equivalent::Equivalent;",
    ] {
        assert!(listing.lines().any(|one| one == line), "{line} is missing");
    }
    // These are private, hidden, unstable, or belong to the models.
    for private in ["pub(crate)", "fn set_own_quotas", "Refused", "AnyRule", "tollgate_loom"] {
        assert!(!listing.contains(private), "{private} is listed");
    }
}

/// A module, with its path and its items.
struct Module {
    items: Vec<Item>,
    children: BTreeMap<String, Module>,
}

/// The meaning of a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    /// An item of the module at this path.
    Item(Vec<String>, String),
    Module(Vec<String>),
    /// An item of another crate.
    Elsewhere(String),
}

fn listing(name: &str, root: &Path) -> String {
    let folder = root.parent().unwrap().to_owned();
    let tree = Tree { root: Module::read(root, &folder) };
    let mut public = BTreeMap::new();
    tree.export(&[], name, &mut public);
    let mut text = format!("The public interface of {name}, written by `make api`: don't edit it.\n");
    for (path, named) in &public {
        text += &format!("\n# {path}\n\n");
        match named {
            Named::Elsewhere(path) => text += &format!("pub use {path};\n"),
            Named::Module(_) => {}
            Named::Item(module, name) => {
                let items = tree.shown(module, name, &public);
                text += &prettyplease::unparse(&syn::File {
                    shebang: None,
                    frontmatter: None,
                    attrs: Vec::new(),
                    items,
                });
            }
        }
    }
    text
}

impl Module {
    /// Reads the module in `file`, whose children are in `folder`.
    fn read(file: &Path, folder: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let items =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items;
        Self::of(items, folder)
    }

    fn of(items: Vec<Item>, folder: &Path) -> Self {
        let items: Vec<Item> = items.into_iter().filter(|item| is_built(attributes(item))).collect();
        let mut children = BTreeMap::new();
        for item in &items {
            let Item::Mod(module) = item else { continue };
            let name = module.ident.to_string();
            let inner = folder.join(&name);
            let child = match &module.content {
                Some((_, items)) => Self::of(items.clone(), &inner),
                None => {
                    let files = [inner.with_extension("rs"), inner.join("mod.rs")];
                    let file: &PathBuf = files.iter().find(|file| file.exists()).expect("a module's file");
                    Self::read(file, &inner)
                }
            };
            children.insert(name, child);
        }
        Self { items, children }
    }
}

struct Tree {
    root: Module,
}

impl Tree {
    fn module(&self, path: &[String]) -> Option<&Module> {
        path.iter().try_fold(&self.root, |module, name| module.children.get(name))
    }

    /// Adds the exports of the module, under the names that a user writes.
    fn export(&self, path: &[String], shown: &str, public: &mut BTreeMap<String, Named>) {
        let module = self.module(path).expect("a module");
        for item in &module.items {
            if !matches!(visibility(item), Some(Visibility::Public(_))) {
                continue;
            }
            match item {
                Item::Use(item) => {
                    for (segments, name) in leaves(&item.tree) {
                        let named = self.resolve(path, &segments);
                        let shown = format!("{shown}::{name}");
                        if let Named::Module(inner) = &named {
                            self.export(inner, &shown, public);
                        }
                        public.insert(shown, named);
                    }
                }
                Item::Mod(item) => {
                    let inner = [path, &[item.ident.to_string()]].concat();
                    let shown = format!("{shown}::{}", item.ident);
                    self.export(&inner, &shown, public);
                    public.insert(shown, Named::Module(inner));
                }
                _ => {
                    let name = name(item).expect("a name");
                    public.insert(format!("{shown}::{name}"), Named::Item(path.to_vec(), name));
                }
            }
        }
    }

    /// Looks up a path from a module.
    fn resolve(&self, at: &[String], segments: &[String]) -> Named {
        let (first, rest) = segments.split_first().expect("a path has a segment");
        let (mut at, rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (at.to_vec(), rest),
            "super" => (at[..at.len() - 1].to_vec(), rest),
            _ => (at.to_vec(), segments),
        };
        for (index, segment) in rest.iter().enumerate() {
            let module = self.module(&at).expect("a module");
            let is_last = index + 1 == rest.len();
            if module.children.contains_key(segment) {
                at.push(segment.clone());
                continue;
            }
            if is_last && module.items.iter().any(|item| name(item).as_ref() == Some(segment)) {
                return Named::Item(at, segment.clone());
            }
            // The module has imported the name, either to re-export it or to use it.
            let imports = module.items.iter().filter_map(|item| match item {
                Item::Use(item) => Some(leaves(&item.tree)),
                _ => None,
            });
            let imported = imports.flatten().find(|(path, name)| name == segment && *path != segments);
            return match imported {
                Some((path, _)) => self.resolve(&at, &[path, rest[index + 1..].to_vec()].concat()),
                None => Named::Elsewhere(segments.join("::")),
            };
        }
        Named::Module(at)
    }

    /// Returns an item as its users see it, and its implementations.
    fn shown(&self, module: &[String], name_of: &str, public: &BTreeMap<String, Named>) -> Vec<Item> {
        let defined = self.module(module).expect("a module").items.iter();
        let mut shown: Vec<Item> = defined
            .filter(|item| name(item).as_deref() == Some(name_of))
            .map(|item| stripped(item.clone()))
            .collect();
        let wanted = Named::Item(module.to_vec(), name_of.to_owned());
        let mut traits = Vec::new();
        self.implementations(&mut Vec::new(), &mut |at, item| {
            // Implementations for a public type are listed with the type. Implementations of a
            // trait for other types are listed with the trait.
            let own = match &*item.self_ty {
                Type::Path(of) => self.resolve(at, &segments(&of.path)),
                _ => Named::Elsewhere(String::new()),
            };
            let is_public = |one: &Named| public.values().any(|public| public == one);
            let of = item.trait_.as_ref().map(|(of, _)| self.resolve(at, &segments(of)));
            let is_of_trait = of.as_ref() == Some(&wanted) && matches!(own, Named::Elsewhere(_));
            if own != wanted && !is_of_trait {
                return;
            }
            let mut item = item.clone();
            item.attrs.retain(is_shown);
            if let Some(of) = of {
                let is_foreign = matches!(of, Named::Elsewhere(_));
                // Only types are kept, such as the types that `Deref` and `FromStr` name.
                item.items.retain(|item| is_foreign && matches!(item, ImplItem::Type(_)));
                if is_foreign || is_public(&of) {
                    traits.push(Item::Impl(item));
                }
                return;
            }
            let is_public = |vis: &Visibility| matches!(vis, Visibility::Public(_));
            item.items.retain(|item| match item {
                ImplItem::Fn(item) => is_public(&item.vis) && is_built(&item.attrs),
                ImplItem::Const(item) => is_public(&item.vis) && is_built(&item.attrs),
                _ => false,
            });
            for item in &mut item.items {
                match item {
                    ImplItem::Fn(item) => {
                        item.attrs.retain(is_shown);
                        item.block = syn::parse_quote!({});
                    }
                    ImplItem::Const(item) => item.attrs.retain(is_shown),
                    _ => {}
                }
            }
            if !item.items.is_empty() {
                shown.push(Item::Impl(item));
            }
        });
        shown.extend(traits);
        shown
    }

    /// Calls `see` with each implementation and its module.
    fn implementations(&self, at: &mut Vec<String>, see: &mut impl FnMut(&[String], &syn::ItemImpl)) {
        let module = self.module(at).expect("a module");
        for item in &module.items {
            if let Item::Impl(item) = item
                && is_built(&item.attrs)
            {
                see(at, item);
            }
        }
        for name in module.children.keys() {
            at.push(name.clone());
            self.implementations(at, see);
            at.pop();
        }
    }
}

/// Returns the paths that a `use` imports, and the names of the imports.
fn leaves(tree: &UseTree) -> Vec<(Vec<String>, String)> {
    match tree {
        UseTree::Path(path) => leaves(&path.tree)
            .into_iter()
            .map(|(rest, name)| ([vec![path.ident.to_string()], rest].concat(), name))
            .map(|(mut path, name)| {
                // `a::{self}` imports `a`.
                path.pop_if(|last| last == "self" && name == "self");
                let name = if name == "self" { path.last().cloned().unwrap_or(name) } else { name };
                (path, name)
            })
            .collect(),
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(name) => vec![(vec![name.ident.to_string()], name.rename.to_string())],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
        UseTree::Glob(_) => Vec::new(),
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Returns an item without bodies, private fields, and attributes that do not affect users.
fn stripped(mut item: Item) -> Item {
    fn public(fields: &mut Fields) {
        if let Fields::Named(fields) = fields {
            let shown = std::mem::take(&mut fields.named).into_iter();
            fields.named = shown.filter(|field| matches!(field.vis, Visibility::Public(_))).collect();
        }
        if let Fields::Unnamed(unnamed) = fields
            && unnamed.unnamed.iter().any(|field| !matches!(field.vis, Visibility::Public(_)))
        {
            *fields = Fields::Unit;
        }
        fields.iter_mut().for_each(|field| field.attrs.retain(is_shown));
    }
    match &mut item {
        Item::Struct(item) => {
            item.attrs.retain(is_shown);
            public(&mut item.fields);
        }
        Item::Enum(item) => {
            item.attrs.retain(is_shown);
            for variant in &mut item.variants {
                variant.attrs.retain(is_shown);
                variant.fields.iter_mut().for_each(|field| field.attrs.retain(is_shown));
            }
        }
        Item::Trait(item) => {
            item.attrs.retain(is_shown);
            item.items.retain(|item| match item {
                syn::TraitItem::Fn(item) => is_built(&item.attrs),
                syn::TraitItem::Type(item) => is_built(&item.attrs),
                _ => true,
            });
            for item in &mut item.items {
                if let syn::TraitItem::Fn(item) = item {
                    item.attrs.retain(is_shown);
                    if item.default.is_some() {
                        item.default = Some(syn::parse_quote!({}));
                    }
                }
            }
        }
        Item::Fn(item) => {
            item.attrs.retain(is_shown);
            item.block = syn::parse_quote!({});
        }
        Item::Const(item) => item.attrs.retain(is_shown),
        Item::Type(item) => item.attrs.retain(is_shown),
        _ => {}
    }
    item
}

/// Returns whether this attribute affects users. Documentation is not listed.
fn is_shown(attribute: &Attribute) -> bool {
    ["derive", "non_exhaustive", "must_use", "cfg", "default"]
        .iter()
        .any(|name| attribute.path().is_ident(name))
}

/// Returns whether the item is part of the library as users build it. This excludes hidden items,
/// items of a feature named as unstable, and items of tests or models.
fn is_built(attributes: &[Attribute]) -> bool {
    let left_out = |attribute: &Attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string().replace(' ', "");
        let is_of = |what: &str| condition == what || condition.starts_with(&format!("all({what},"));
        let is_unstable = condition.starts_with("feature=\"unstable");
        let is_hidden = list.path.is_ident("doc") && condition == "hidden";
        let is_of_tests = is_of("test") || is_of("tollgate_loom") || is_of("doctest") || is_unstable;
        is_hidden || list.path.is_ident("cfg") && is_of_tests
    };
    !attributes.iter().any(left_out)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn visibility(item: &Item) -> Option<&Visibility> {
    Some(match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Use(item) => &item.vis,
        _ => return None,
    })
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        _ => return None,
    })
}
