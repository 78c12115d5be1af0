//go:build unix

package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Check refuses a folder in which another user can put a state file: its content becomes objects,
// backlogs and kv of handlers. The router's user and root may own it, because root owns a mounted
// volume. Its group may write to it: that is how Kubernetes passes a volume to a container
// (fsGroup).
func Check(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fileerr.Explain(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch uid := os.Geteuid(); {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case ok && int(stat.Uid) != uid && stat.Uid != 0:
		return fmt.Errorf("%s belongs to the user %d and the router runs as %d: chown it, or name a folder of the router's own", dir, stat.Uid, uid)
	case info.Mode()&0o002 != 0:
		remedy := fmt.Sprintf("name a folder in it, as %s, which the router makes", filepath.Join(dir, "deltarouter"))
		if info.Mode()&os.ModeSticky == 0 { // not meant for everybody, as /tmp is
			remedy += ", or run chmod o-w " + dir
		}
		return fmt.Errorf("every user of this machine may write to %s: %s", dir, remedy)
	}
	return nil
}
