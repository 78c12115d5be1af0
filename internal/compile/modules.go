package compile

import (
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
