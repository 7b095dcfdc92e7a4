# The parts of nixpkgs' `lib` that the modules use, written from their documentation. What the
# real library has by another name, or not at all, is not here either.
let
  parts = {
    trivial = import ./trivial.nix lib;
    lists = import ./lists.nix lib;
    attrsets = import ./attrsets.nix lib;
    strings = import ./strings.nix lib;
    generators = import ./generators.nix lib;
    options = import ./options.nix lib;
    modules = import ./modules.nix lib;
    types = import ./types.nix lib;
    meta = import ./meta.nix lib;
    customisation = import ./customisation.nix lib;
    asserts = import ./asserts.nix lib;
    fixedPoints = import ./fixed-points.nix lib;
  };

  own = parts // {
    licenses = {
      asl20 = {
        spdxId = "Apache-2.0";
        fullName = "Apache License 2.0";
        free = true;
      };
    };
    maintainers = { };
    platforms.linux = [
      "x86_64-linux"
      "aarch64-linux"
    ];
  };

  # What the real library has in its parts only.
  inner = {
    trivial = [ "release" ];
    strings = [
      "escapeNixIdentifier"
      "escapeNixString"
      "isConvertibleWithToString"
      "replicate"
      "sanitizeDerivationName"
    ];
    options = [ "showDefs" ];
    modules = [
      "defaultOrderPriority"
      "defaultOverridePriority"
      "filterOverrides'"
      "importApply"
    ];
    types = builtins.attrNames parts.types;
    generators = builtins.attrNames parts.generators;
  };
  outer = name: removeAttrs parts.${name} (inner.${name} or [ ]);

  lib = builtins.foldl' (all: name: all // outer name) own (builtins.attrNames parts) // {
    inherit (parts.types)
      isType
      mkOptionType
      setType
      ;
  };
in
lib
