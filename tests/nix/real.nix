# The stand-in beside a real nixpkgs: names that only the stand-in has, and options that differ.
{ shim, real }:
let
  own = import (shim + "/lib");
  other = import (real + "/lib");
  tree = path: (import (path + "/flake.nix")).outputs { self = source path; };
  source = path: {
    outPath = toString path;
    lastModifiedDate = "19700101000000";
  };
  inherit (builtins) attrNames filter;

  extra = a: b: filter (name: !b ? ${name}) (attrNames a);
  parts = [
    "asserts"
    "attrsets"
    "customisation"
    "fixedPoints"
    "generators"
    "lists"
    "meta"
    "modules"
    "options"
    "strings"
    "trivial"
    "types"
  ];

  host = path: (tree path).lib.nixosSystem {
    system = "x86_64-linux";
    modules = [ { system.stateVersion = "24.05"; } ];
  };
  mine = (host shim).options;
  theirs = (host real).options;

  # An option, or none, of a tree of options.
  at = path: options: own.attrByPath path null options;
  isOption = own.isOption;

  # [ { path; type; default; } … ], those of submodules, too.
  described =
    prefix: options:
    own.concatMap (
      name:
      let
        value = options.${name};
        path = prefix ++ [ name ];
        # `<name>` and `*` are written the same way by both.
        below = builtins.tryEval (value.type.getSubOptions path);
      in
      if name == "_module" || name == "_freeformOptions" then
        [ ]
      else if isOption value then
        [
          {
            path = own.concatStringsSep "." path;
            type = value.type.description or "unspecified";
            default = simple value;
          }
        ]
        ++ own.optionals (below.success && builtins.isAttrs below.value) (
          described path below.value
        )
      else if builtins.isAttrs value then
        described path value
      else
        [ ]
    ) (attrNames options);

  # A default that is text, a number, a truth value, null or empty; else only whether there is one.
  simple =
    option:
    let
      value = builtins.tryEval option.default;
      plain = builtins.elem (builtins.typeOf value.value) [
        "bool"
        "int"
        "null"
        "string"
      ];
      empty = value.value == [ ] || value.value == { };
    in
    if !option ? default then
      "none"
    else if option ? defaultText || !value.success || !(plain || empty) then
      "some"
    else
      builtins.toJSON value.value;

  # Every option of the stand-in, by its place.
  paths = map (option: option.loc) (own.collect isOption (removeAttrs mine [ "_module" ]));
  flat =
    options:
    builtins.listToAttrs (
      map
        (entry: {
          name = entry.path;
          value = entry;
        })
        (
          own.concatMap (
            path:
            own.optionals (at path options != null) (
              described (own.init path) { ${own.last path} = at path options; }
            )
          ) paths
        )
    );
  same =
    a: b:
    a.type == b.type
    && (
      a.default == b.default
      || builtins.elem "some" [
        a.default
        b.default
      ]
    );
  ours = flat mine;
  reals = flat theirs;
in
{
  names = {
    lib = extra own other;
  }
  // own.genAttrs parts (part: extra own.${part} other.${part});

  missing = filter (name: !reals ? ${name}) (attrNames ours);
  different = own.concatMap (
    name:
    own.optional (reals ? ${name} && !same ours.${name} reals.${name}) {
      inherit name;
      shim = removeAttrs ours.${name} [ "path" ];
      real = removeAttrs reals.${name} [ "path" ];
    }
  ) (attrNames ours);

  # What the stand-in has, to be kept once it was compared.
  has = {
    names = builtins.mapAttrs (_: attrNames) (own.genAttrs parts (part: own.${part})) // {
      lib = attrNames own;
    };
    options = builtins.mapAttrs (_: entry: removeAttrs entry [ "path" ]) ours;
  };
}
