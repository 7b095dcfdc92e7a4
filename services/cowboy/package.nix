# The distribution with the programs `cowboy`, `tamq`, `a2a-bridge`, `corral-gateway`, `corral`, for
# `pkgs.callPackage`.
{ python3Packages }:
python3Packages.callPackage (
  {
    lib,
    setuptools,
    aiohttp,
    aiosqlite,
    asyncpg,
    click,
    hiredis,
    mautrix,
    prometheus-client,
    pydantic,
    pydantic-settings,
    pyte,
    redis,
    rich,
    structlog,
    wcwidth,
  }:
  let
    # Stated once, where the program itself reads it.
    version = builtins.match ".*__version__ = \"([^\"]+)\".*" (
      builtins.readFile ../../python/corral/__init__.py
    );
  in
  python3Packages.buildPythonApplication {
    pname = "corral";
    version = builtins.head version;
    pyproject = true;

    src = ../../python;
    postPatch = "cp ${../../examples/demo.json} corral/local/demo.json";

    build-system = [ setuptools ];
    dependencies = [
      aiohttp
      aiosqlite
      asyncpg
      click
      hiredis
      mautrix
      prometheus-client
      pydantic
      pydantic-settings
      pyte
      redis
      rich
      structlog
      wcwidth
    ];

    # The tests need servers and a terminal: `./corral test` runs them, from a checkout.
    doCheck = false;
    pythonImportsCheck = [
      "corral.bridge.main"
      "corral.cowboy.main"
      "corral.cowboy.runner"
      "corral.gateway.main"
      "corral.overview.main"
      "corral.tamq.main"
    ];

    meta = {
      description = "Carries messages to AI agents and their answers back; loses none to a kill";
      license = lib.licenses.asl20;
      mainProgram = "cowboy";
      platforms = lib.platforms.linux;
    };
  }
) { }
