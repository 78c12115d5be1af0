package lockfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/oci"
	"github.com/deltarouter/deltarouter/internal/oci/lockfile"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func ref(t *testing.T, text string) oci.Ref {
	t.Helper()
	r, err := oci.Parse(text)
	must.Succeed(t, err)
	return r
}

// TestLock: an entry replaces that of the same tag, and the others stay, in the order of their
// names.
func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), lockfile.Name)
	a, b := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
	must.Succeed(t, lockfile.Lock(path, ref(t, "oci://example.com/team/dns:1"), b, `a "name" # of <one>`))
	must.Succeed(t, lockfile.Lock(path, ref(t, "oci://example.com/team/audit:1"), a, ""))
	must.Succeed(t, lockfile.Lock(path, ref(t, "oci://example.com/team/dns:1@"+b), a, "me\n- ref: x\x01\u2028\U0001F600"))
	must.Succeed(t, lockfile.Lock(path, ref(t, "oci://example.com/team/dns:2"), b, "me"))
	want := `modules:
  - ref: "oci://example.com/team/audit:1"
    digest: "` + a + `"
  - ref: "oci://example.com/team/dns:1"
    digest: "` + a + `"
    verified: "me\n- ref: x\x01\u2028😀"
  - ref: "oci://example.com/team/dns:2"
    digest: "` + b + `"
    verified: "me"
`
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	if _, got, _ := strings.Cut(string(text), "\n"); got != want {
		t.Errorf("the file is\n%s\nwant\n%s", got, want)
	}
	f, err := lockfile.Read(path)
	must.Succeed(t, err)
	if e := f.Find(ref(t, "oci://example.com/team/dns:1")); e == nil || e.Digest != a || e.Verified != "me\n- ref: x\x01\u2028😀" {
		t.Errorf("the entry is %+v", e)
	}
	if e := f.Find(ref(t, "oci://example.com/team/dns:3")); e != nil {
		t.Errorf("another tag has the entry %+v", e)
	}
	if err := lockfile.Lock(path, ref(t, "oci://example.com/team/dns@"+a), a, ""); err == nil || !strings.Contains(err.Error(), "has no tag") {
		t.Errorf("without a tag: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// TestMistakes: a damaged file is rejected with the position, and is not written.
func TestMistakes(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0", 64)
	for text, want := range map[string]string{
		"modules: [":  "plugins.lock:1",
		"digests: {}": "digests",
		"modules: [{ref: oci://x/y:1, digest: z}]":                    "plugins.lock:1:38: modules[0].digest: must be sha256:",
		"modules: [{ref: oci://x/y, digest: \"" + digest + "\"}]":     "must have a tag and no digest",
		"modules: [{ref: \"oci://x/y:1@" + digest + "\", digest: a}]": "must have a tag and no digest",
		strings.Repeat("# long\n", 1<<18):                             "larger than 1Mi",
	} {
		path := filepath.Join(t.TempDir(), lockfile.Name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := lockfile.Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: the error is %v, want %q", text, err, want)
		}
		if err := lockfile.Lock(path, ref(t, "oci://x/y:1"), digest, ""); err == nil {
			t.Errorf("%.60s: the file is replaced", text)
		}
	}
	if f, err := lockfile.Read(filepath.Join(t.TempDir(), "missing")); err != nil || len(f.Modules) > 0 {
		t.Errorf("a missing file: %v, %v", f, err)
	}
}
