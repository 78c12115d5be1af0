//go:build linux

package chaos

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// oneWorker has one worker: a new object waits until its identity is on disk, and known objects do
// not wait for it.
const oneWorker = keepConfigMaps + "    concurrency: 1\n"

// TestFullDisk fills the disk of state.dir. New objects must not be delivered, and /readyz must say
// why; known objects must go on, even those of the same route. After there is room again everything
// must be delivered.
func TestFullDisk(t *testing.T) {
	// Guarantee: full-disk
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(oneWorker, ns))
	disk := mount(t, filepath.Join(filepath.Dir(file), "state"), "size=20m,mode=0700")
	f := &fullDisk{s: s, ns: ns, maps: routertest.Use(t, s, routertest.ConfigMaps, ns), file: file}
	f.run(t, routertest.StartFile(t, file), func() {
		if err := os.WriteFile(filepath.Join(disk, "filler"), make([]byte, 20<<20), 0o600); err == nil {
			t.Fatal("there was room for 20 MiB")
		}
	}, func() {
		must.Succeed(t, os.Remove(filepath.Join(disk, "filler")))
	})
}

// mount mounts a tmpfs at a folder, if that is permitted.
func mount(t *testing.T, folder, options string) string {
	t.Helper()
	must.Succeed(t, os.MkdirAll(folder, 0o700))
	if err := syscall.Mount("none", folder, "tmpfs", 0, options); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must.Report(t, syscall.Unmount(folder, syscall.MNT_DETACH)) })
	return folder
}

// TestReadOnlyState shows that with an unwritable state folder the router does not start, says why,
// and leaves the folder unchanged. (A file system that becomes read-only while the router runs is
// like a full disk, see TestFullDisk.)
func TestReadOnlyState(t *testing.T) {
	// Guarantee: read-only-state
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns))
	folder := filepath.Dir(stateOf(file))
	mount(t, folder, "size=20m,mode=0700")
	fill(t, s, ns, file)
	before, err := os.ReadFile(stateOf(file))
	must.Succeed(t, err)
	remount := func(flags uintptr) {
		must.Succeed(t, syscall.Mount("none", folder, "tmpfs", syscall.MS_REMOUNT|flags, "size=20m"))
	}
	remount(syscall.MS_RDONLY)
	for range 2 {
		code, log := routertest.RunToEnd(t, file)
		if code != 1 || !strings.Contains(log, "state.dir: ") || !strings.Contains(log, "its file system is read-only") {
			t.Errorf("exit code %d, want 1; %s", code, log)
		}
	}
	if after, err := os.ReadFile(stateOf(file)); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed (%v)", err)
	}
	remount(0)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Remove("m-0")
	r := routertest.StartFile(t, file)
	if events := r.Expect(t, "all deleted "+ns+"/m-0"); len(events) != 1 {
		t.Errorf("got %q", routertest.Summary(events))
	}
	r.Kill(t)
}

// TestFileSizeLimit is TestFullDisk with a limit on the size of files, like that of ulimit -f.
func TestFileSizeLimit(t *testing.T) {
	// Guarantee: full-disk
	t.Parallel()
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip(err)
	}
	s, ns := sandboxtest.StartNamespace(t)
	file := routertest.InstallAPI(t, s.Kubeconfig(), fmt.Sprintf(oneWorker, ns))
	f := &fullDisk{s: s, ns: ns, maps: routertest.Use(t, s, routertest.ConfigMaps, ns), file: file}
	r := routertest.StartFile(t, file)
	limit := func(to string) {
		if out, err := exec.CommandContext(t.Context(), "prlimit", "--pid", fmt.Sprint(r.Process().Pid), "--fsize="+to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	f.run(t, r, func() { limit("8192:unlimited") }, func() { limit("unlimited:unlimited") })
}

// fullDisk is a router whose disk is full for a while.
type fullDisk struct {
	s    *sandboxtest.Sandbox
	ns   string
	maps routertest.Objects
	file string
}

func (f *fullDisk) run(t *testing.T, r *routertest.Router, full, roomy func()) {
	t.Helper()
	n := f.ns + "/"
	f.maps.Make(routertest.ConfigMap("known", "1"))
	r.Ready(t)
	r.Expect(t, "all added "+n+"known")
	r.Saved(t)
	full()
	// More than the file has room for.
	f.maps.Make(routertest.ConfigMap("big", incompressible(800<<10)))
	f.fill(t, r)
	code, body := 0, ""
	routertest.Poll(t, "/readyz to say no", func() bool { code, body = r.Get(t, "/readyz"); return code != http.StatusOK })
	if said := r.Status(t); !strings.Contains(body, "[-]state: ") || !strings.Contains(said, "no room") {
		t.Errorf("/readyz says %s, and the status not why: %s", body, said)
	}
	f.maps.Change("known", `{"data":{"value":"2"}}`)
	f.maps.Make(routertest.ConfigMap("waits", "1"))
	events := r.Expect(t, "all updated "+n+"known")
	if got := routertest.Of(events, n+"waits"); len(got) != 0 {
		t.Errorf("got %q: what is new must not be delivered before its identity is on disk", got)
	}
	roomy()
	r.Expect(t, "all added "+n+"waits", "all added "+n+"big")
	r.Ready(t)
	r.Saved(t)
	before := len(r.Events())
	r.Kill(t)

	f.maps.Remove("waits")
	r = routertest.StartFile(t, f.file)
	if events := r.Expect(t, "all deleted "+n+"waits"); len(events) != 1 {
		t.Errorf("got %q after %d events before, want one", routertest.Summary(events), before)
	}
}

// fill makes changes until the router cannot write any more.
func (f *fullDisk) fill(t *testing.T, r *routertest.Router) {
	t.Helper()
	for i := range 60 {
		if code, _ := r.Get(t, "/readyz"); code != http.StatusOK {
			return
		}
		f.maps.Make(routertest.ConfigMap(fmt.Sprintf("fill-%d", i), incompressible(800<<10)))
	}
}
