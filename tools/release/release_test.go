package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// epoch is the time of the artifacts of these tests: 2026-01-02T03:04:05Z.
const epoch = "1767323045"

// host is the platform whose compiled packages are in the build cache.
const host = "linux/" + runtime.GOARCH

// TestRelease builds a release of one platform twice, with different settings in the environment,
// and checks that the results are equal and have the promised content.
func TestRelease(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", epoch)
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	printed := build(t, "release", "-platforms", host, "-version", "1.2.3", "-out", first)
	t.Setenv("GOFLAGS", "-ldflags=-B=none -tags=other")
	t.Setenv("TZ", "Asia/Tokyo")
	if again := build(t, "release", "-platforms", host, "-version", "1.2.3", "-out", second); again != printed {
		t.Errorf("printed\n%sand\n%s", printed, again)
	}
	sums := checksums(t, first)
	if again := checksums(t, second); !maps.Equal(sums, again) {
		t.Errorf("the first build made\n%v\nthe second\n%v", sums, again)
	}

	name := "deltarouter_1.2.3_linux_" + runtime.GOARCH
	want := []string{"checksums.txt", name + ".cdx.json", name + ".tar.gz", "deltarouter-1.2.3.tgz", "deltarouter_1.2.3_image.tar"}
	if got := slices.Sorted(maps.Keys(sums)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("artifacts %q, want %q", got, want)
	}
	listed, err := os.ReadFile(filepath.Join(first, "checksums.txt"))
	succeed(t, err)
	for _, artifact := range want[1:] {
		if line := sums[artifact] + "  " + artifact + "\n"; !strings.Contains(string(listed), line) {
			t.Errorf("checksums.txt has no line %sbut\n%s", line, listed)
		}
	}
	t.Run("archive", func(t *testing.T) { checkArchive(t, first, name) })
	t.Run("bill", func(t *testing.T) { checkBill(t, first, name) })
	t.Run("chart", func(t *testing.T) { checkChart(t, first) })
	t.Run("image", func(t *testing.T) {
		layout := filepath.Join(t.TempDir(), "image")
		content, err := os.Open(filepath.Join(first, "deltarouter_1.2.3_image.tar"))
		succeed(t, err)
		defer content.Close()
		extract(t, content, layout)
		checkImage(t, layout, printed)
	})
}

// build runs the command and returns its output.
func build(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	succeed(t, run(t.Context(), args, &out))
	return out.String()
}

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checksums returns the SHA-256 of all files of a folder, by name.
func checksums(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	files, err := os.ReadDir(dir)
	succeed(t, err)
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		succeed(t, err)
		found[f.Name()] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return found
}

// extract writes the content of a tar file into a new folder and returns the names of its files.
func extract(t *testing.T, from io.Reader, dir string) (names []string) {
	t.Helper()
	succeed(t, os.Mkdir(dir, 0o755))
	for files := tar.NewReader(from); ; {
		header, err := files.Next()
		if err == io.EOF { //nolint:errorlint // tar returns io.EOF itself
			return names
		}
		succeed(t, err)
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			succeed(t, os.Mkdir(path, 0o755))
			continue
		}
		names = append(names, header.Name)
		content, err := io.ReadAll(files)
		succeed(t, err)
		succeed(t, os.WriteFile(path, content, fs.FileMode(header.Mode)))
	}
}

// checkChart checks the packaged chart. tools/chart tests the chart itself.
func checkChart(t *testing.T, release string) {
	t.Helper()
	packed, err := os.Open(filepath.Join(release, "deltarouter-1.2.3.tgz"))
	succeed(t, err)
	defer packed.Close()
	content, err := gzip.NewReader(packed)
	succeed(t, err)
	text := make(map[string]string)
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if err == io.EOF { //nolint:errorlint // tar returns io.EOF itself
			break
		}
		succeed(t, err)
		data, err := io.ReadAll(files)
		succeed(t, err)
		text[header.Name] = string(data)
	}
	for _, name := range []string{"values.yaml", "values.schema.json", "templates/statefulset.yaml"} {
		if text["deltarouter/"+name] == "" {
			t.Errorf("the chart has no %s", name)
		}
	}
	for _, line := range []string{"name: deltarouter\n", "version: \"1.2.3\"\n", "appVersion: \"1.2.3\"\n"} {
		if !strings.Contains(text["deltarouter/Chart.yaml"], line) {
			t.Errorf("Chart.yaml has no line %sbut\n%s", line, text["deltarouter/Chart.yaml"])
		}
	}
}

// TestChartVersion checks that every version of git describe becomes a semantic version.
func TestChartVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-4-gabc-dirty": "1.2.3-4-gabc-dirty", "0123456": "0.0.0-g0123456", "a_b": "0.0.0-ga-b",
	} {
		if got := (source{version: version}).chartVersion(); got != want {
			t.Errorf("version %s: chart %s, want %s", version, got, want)
		}
	}
}

// checkArchive checks the files of the archive, and runs its router.
func checkArchive(t *testing.T, release, name string) {
	t.Helper()
	packed, err := os.Open(filepath.Join(release, name+".tar.gz"))
	succeed(t, err)
	defer packed.Close()
	content, err := gzip.NewReader(packed)
	succeed(t, err)
	dir := filepath.Join(t.TempDir(), "unpacked")
	want := []string{name + "/CHANGELOG.md", name + "/LICENSE", name + "/README.md", name + "/THIRD-PARTY-LICENSES.txt", name + "/router"}
	if names := extract(t, content, dir); !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
	licenses, err := os.ReadFile(filepath.Join(dir, want[3]))
	succeed(t, err)
	for _, title := range []string{"==== Go: LICENSE\n", "==== k8s.io/client-go v", "==== The JavaScript engine: LICENSES.txt\n"} {
		if !strings.Contains(string(licenses), title) {
			t.Errorf("the licences have no %q", title)
		}
	}
	out, err := exec.Command(filepath.Join(dir, want[4]), "version", "-o", "json").Output()
	succeed(t, err)
	var version struct{ Version, Kubernetes string }
	succeed(t, json.Unmarshal(out, &version))
	if version.Version != "1.2.3" || !strings.HasPrefix(version.Kubernetes, "v") {
		t.Errorf("router version -o json prints %s", out)
	}
}

// checkBill compares the bill of materials with the modules in the binary.
func checkBill(t *testing.T, release, name string) {
	t.Helper()
	text, err := os.Open(filepath.Join(release, name+".cdx.json"))
	succeed(t, err)
	defer text.Close()
	var bill cdx.BOM
	succeed(t, cdx.NewBOMDecoder(text, cdx.BOMFileFormatJSON).Decode(&bill))
	if bill.Metadata.Component.Version != "1.2.3" || bill.Metadata.Timestamp != "2026-01-02T03:04:05Z" {
		t.Errorf("it describes %+v", bill.Metadata)
	}
	packed, err := os.Open(filepath.Join(release, name+".tar.gz"))
	succeed(t, err)
	defer packed.Close()
	content, err := gzip.NewReader(packed)
	succeed(t, err)
	dir := filepath.Join(t.TempDir(), "unpacked")
	extract(t, content, dir)
	info, err := buildinfo.ReadFile(filepath.Join(dir, name, "router"))
	succeed(t, err)
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	if _, err := os.Stat("../../pkg/plugins/js/engine/quickjs.wasm"); err == nil {
		want = append(want, "pkg:npm/quickjs-wasi@3.6.2")
	} else if os.Getenv("CI") != "" {
		t.Logf("the JavaScript engine is missing, so the bill of materials is not checked for it (sh tools/jsengine.sh): %v", err)
	}
	var got []string
	for _, c := range *bill.Components {
		got = append(got, c.PackageURL)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the bill has %q, the binary %q", got, want)
	}
}

// TestMistakes checks the messages about wrong command lines and settings.
func TestMistakes(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	outside := t.TempDir() // no git repository
	for _, c := range []struct {
		name  string
		epoch string
		args  []string
		want  string
	}{
		{"no command", epoch, nil, "usage: release files|image|release -out FOLDER"},
		{"no folder", epoch, []string{"files"}, "files needs -out FOLDER"},
		{"platform", epoch, []string{"image", "-out", out, "-platforms", "linux"}, `"linux" is not OS/ARCHITECTURE`},
		{"version", epoch, []string{"image", "-out", out, "-version", "1 2"}, `the version "1 2" has characters beside`},
		{"time", "yesterday", []string{"image", "-out", out, "-version", "1"}, `"yesterday" is not a number of seconds since 1970`},
		{"no repository", "", []string{"image", "-out", out, "-version", "1", "-root", outside}, "set SOURCE_DATE_EPOCH"},
		{"no version", epoch, []string{"image", "-out", out, "-root", outside}, "name it with -version"},
		{"two platforms", epoch, []string{"files", "-out", out}, "files needs one platform"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", c.epoch)
			if err := run(t.Context(), c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
