package js

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
)

// built contains the engine if it was there when the router was built, and its licences.
//
//go:embed engine
var built embed.FS

const (
	enginePackage = "quickjs-wasi 3.6.2" // of npm
	engineFile    = "quickjs.wasm"
	// engineDigest is the SHA-256 of the engine. tools/jsengine.sh has it too.
	engineDigest = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"
)

// errNoEngine is the error of a router that was built without the engine.
var errNoEngine = errors.New("this router was built without the JavaScript engine: take the container image or an archive of a release, " +
	"build it by `make build` where npm is installed, or name the file quickjs.wasm of the npm package " + enginePackage + " with `engine`")

// loadEngine returns the module of the engine: the content of a file, or what was built in if the
// path is empty.
func loadEngine(path string) ([]byte, error) {
	if path == "" {
		module, err := built.ReadFile("engine/" + engineFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errNoEngine
		}
		if err != nil {
			return nil, err
		}
		return module, verify(module)
	}
	module, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("engine %s cannot be read: %w", path, fileerr.Cause(err))
	}
	if err := verify(module); err != nil {
		return nil, fmt.Errorf("engine %s: %w", path, err)
	}
	return module, nil
}

func verify(module []byte) error {
	if sum := sha256.Sum256(module); hex.EncodeToString(sum[:]) != engineDigest {
		return fmt.Errorf("its content is not the file %s of the npm package %s, whose SHA-256 is %s", engineFile, enginePackage, engineDigest)
	}
	return nil
}

// shared has the metered and compiled engine for all handlers of the process: [verify] permits one
// file only.
var shared = sync.OnceValue(engine.NewShared)
