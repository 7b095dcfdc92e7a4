# A Python of nixpkgs: packages by name, and builders that keep what they are given.
{ lib, builders, pkgs }:
let
  version = "3.13";
  python =
    builders.package "python3" {
      version = "${version}.9";
      mainProgram = "python3";
    }
    // {
      pythonVersion = version;
      sitePackages = "lib/python${version}/site-packages";
      pkgs = packages;
      withPackages =
        select:
        builders.package "python3-env" {
          version = "${version}.9";
          mainProgram = "python3";
          needs = map toString (select packages);
        };
    };
  named = name: builders.package "python${version}-${name}" { version = "0"; };
  packages = lib.genAttrs [
    "aiohttp"
    "aiosqlite"
    "asyncpg"
    "click"
    "hiredis"
    "hypothesis"
    "markdown-it-py"
    "mautrix"
    "mkdocs-material"
    "mypy"
    "prometheus-client"
    "pydantic"
    "pydantic-settings"
    "pyte"
    "pytest"
    "redis"
    "rich"
    "ruff"
    "setuptools"
    "structlog"
    "wcwidth"
  ] named
  // {
    inherit python;
    callPackage = lib.callPackageWith (pkgs // packages);
    toPythonModule = lib.id;
    buildPythonPackage = built;
    buildPythonApplication = built;
  };
  built =
    args:
    builders.package args.pname {
      inherit (args) version;
      mainProgram = args.meta.mainProgram or args.pname;
      needs = map toString (args.dependencies or [ ] ++ args.build-system or [ ]);
    }
    // {
      meta = args.meta or { };
      passthru = args.passthru or { };
    }
    // args.passthru or { };
in
python
