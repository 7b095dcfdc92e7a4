# The documentation as a site (`./corral docs`): `nix build .#docs`, then result/index.html.
{
  lib,
  corral,
  python3,
  runCommand,
}:
let
  python = python3.withPackages (packages: [
    packages.markdown-it-py
    packages.mkdocs-material
  ]);

  # The pages, and what they link to: each of those is a page, too.
  parts = {
    "CHANGELOG.md" = ../../CHANGELOG.md;
    "README.md" = ../../README.md;
    docs = ../../docs;
    examples = ../../examples;
    modules = ../../modules;
    monitoring = ../../monitoring;
    python = ../../python;
    services = ../../services;
    tests = ../../tests;
  };
in
runCommand "corral-docs-${corral.version}"
  {
    nativeBuildInputs = [ python ];
    meta = {
      description = "The documentation of Corral as a site that is read without a network";
      license = lib.licenses.asl20;
      platforms = lib.platforms.all;
    };
  }
  ''
    mkdir checkout
    ${lib.concatStrings (lib.mapAttrsToList (name: part: "cp -r ${part} checkout/${name}\n") parts)}
    python3 -P checkout/docs/site/build.py --dir "$PWD/site"
    mv site "$out"
  ''
