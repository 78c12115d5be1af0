package compile

import (
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// CacheFolder is the folder in state.dir for data that can be made again.
const CacheFolder = "cache"

// ModulesOf returns the folder in state.dir for modules of registries; empty: there is none.
func ModulesOf(state config.State) string {
	if state.Dir == "" {
		return ""
	}
	return filepath.Join(state.Dir, CacheFolder, "modules")
}

// UserCache is the folder of the user for compiled modules, so that a module is compiled once per
// machine. It is empty if the user has none that can be written.
func UserCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir = filepath.Join(dir, "deltarouter")
	if os.MkdirAll(dir, 0o700) != nil {
		return ""
	}
	return dir
}
