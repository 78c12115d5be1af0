package files_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/files"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// folder writes files below a new folder. The content of a link is its target, after "->".
func folder(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if target, link := strings.CutPrefix(text, "->"); link {
			must.Succeed(t, os.Symlink(target, path))
		} else {
			must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		}
	}
	return dir
}

// show returns all files below an open folder of a tree with their content, one per line.
func show(t *testing.T, table *files.Table, fd uint32, prefix string) (all string) {
	t.Helper()
	for i := uint64(0); ; i++ {
		e, done, errno := table.Entry(fd, i)
		if errno != files.OK {
			t.Fatal(errno)
		}
		if done {
			return all
		}
		opened, errno := table.Open(fd, e.Name, false)
		if errno != files.OK {
			t.Fatal(e.Name, errno)
		}
		if e.Folder {
			all += prefix + e.Name + "/\n" + show(t, table, opened, prefix+e.Name+"/")
		} else {
			text, _ := table.Read(opened, 1<<20)
			all += prefix + e.Name + "=" + string(text) + "\n"
		}
		if errno := table.Close(opened); errno != files.OK {
			t.Fatal(errno)
		}
	}
}

func TestFolder(t *testing.T) {
	// Guarantee: command-files
	outside := folder(t, map[string]string{"secret": "s"})
	for _, tt := range []struct {
		name    string
		content map[string]string
		want    string // the files, or the error
	}{
		{"files", map[string]string{"a": "1", "b/c": "2"}, "x/\nx/a=1\nx/b/\nx/b/c=2\n"},
		{"a link within", map[string]string{"a": "1", "b": "->a", "c/d": "->../a"}, "x/\nx/a=1\nx/b=1\nx/c/\nx/c/d=1\n"},
		{"a volume of Kubernetes", map[string]string{"..v1/a": "1", "..data": "->..v1", "a": "->..data/a"}, "x/\nx/a=1\n"},
		{"a link to a folder", map[string]string{"a/b": "1", "c": "->a"}, "x/\nx/a/\nx/a/b=1\nx/c/\nx/c/b=1\n"},
		{"a link that leaves", map[string]string{"a": "->" + outside + "/secret"}, "a is a link that leaves the folder"},
		{"a relative link that leaves", map[string]string{"a": "->../" + filepath.Base(outside) + "/secret"}, "a is a link that leaves the folder"},
		{"a link to a folder that leaves", map[string]string{"a": "->" + outside}, "a is a link that leaves the folder"},
		{"a link to nothing", map[string]string{"a": "->b"}, "a is a link that leaves the folder, or leads nowhere"},
		{"a link in circles", map[string]string{"a/b": "->../a"}, "is a link that leaves the folder, or leads nowhere"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := files.Mount{Folder: folder(t, tt.content), To: "/x"}
			tree, err := files.Load([]files.Mount{m})
			if err != nil {
				must.Fail(t, err, tt.want)
				return
			}
			if got := show(t, files.NewTable(tree), files.First, ""); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
			if sources := m.Sources(); len(sources) != strings.Count(tt.want, "=") {
				t.Errorf("its sources are %s", sources)
			}
		})
	}
}

func TestMounts(t *testing.T) {
	dir := folder(t, map[string]string{"a": "1", "b/c": "2", "large": ""})
	must.Succeed(t, os.Truncate(filepath.Join(dir, "large"), files.MaxBytes+1))
	must.Succeed(t, syscall.Mkfifo(filepath.Join(dir, "b", "pipe"), 0o600))
	a := filepath.Join(dir, "a")
	for _, tt := range []struct {
		name   string
		mounts []files.Mount
		want   string
	}{
		{"one file", []files.Mount{{File: a, To: "/app/x"}}, "app/\napp/x=1\n"},
		{"two files in a folder", []files.Mount{{File: a, To: "/app/x"}, {File: a, To: "/app/y", SHA256: "6B86B273FF34FCE19D6B804EFF5A3F5747ADA4EAA22F1D49C01E52DDB7875B4B"}}, "app/\napp/x=1\napp/y=1\n"},
		{"twice", []files.Mount{{File: a, To: "/x"}, {File: a, To: "/x"}}, "/x exists twice"},
		{"a file and a folder", []files.Mount{{File: a, To: "/x"}, {File: a, To: "/x/y"}}, "/x is a file and a folder"},
		{"another content", []files.Mount{{File: a, To: "/x", SHA256: strings.Repeat("0", 64)}}, "its SHA-256 is 6b86b273"},
		{"missing", []files.Mount{{File: a + "b", To: "/x"}}, "there is no such file"},
		{"a folder as a file", []files.Mount{{File: dir, To: "/x"}}, "it is not a file; a folder has the key `folder`"},
		{"a file as a folder", []files.Mount{{Folder: a, To: "/x"}}, "a is "},
		{"a pipe", []files.Mount{{File: filepath.Join(dir, "b", "pipe"), To: "/x"}}, "it is not a file"},
		{"a pipe in a folder", []files.Mount{{Folder: filepath.Join(dir, "b"), To: "/x"}}, "pipe is neither a file nor a folder"},
		{"too large", []files.Mount{{File: filepath.Join(dir, "large"), To: "/x"}}, "the files of a handler have more than 64 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree, err := files.Load(tt.mounts)
			if err != nil {
				if tt.name == "a file as a folder" {
					return // its text is that of the system
				}
				must.Fail(t, err, tt.want)
				return
			}
			if got := show(t, files.NewTable(tree), files.First, ""); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// entry is an entry of an archive.
type entry struct {
	name, content string
	mode          fs.FileMode
}

func zipped(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode | 0o600)
		f, err := w.CreateHeader(h)
		must.Succeed(t, err)
		_, err = f.Write([]byte(e.content))
		must.Succeed(t, err)
	}
	must.Succeed(t, w.Close())
	return b.Bytes()
}

func tarred(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Size: int64(len(e.content)), Mode: 0o600}
		switch {
		case e.mode.IsDir():
			h.Typeflag = tar.TypeDir
		case e.mode&fs.ModeSymlink != 0:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.content, 0
		}
		must.Succeed(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write([]byte(e.content))
			must.Succeed(t, err)
		}
	}
	must.Succeed(t, w.Close())
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	must.Succeed(t, err)
	must.Succeed(t, w.Close())
	return b.Bytes()
}

// load unpacks an archive and shows its files, or returns the error.
func load(t *testing.T, archive []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "archive")
	must.Succeed(t, os.WriteFile(file, archive, 0o600))
	tree, err := files.Load([]files.Mount{{Archive: file, To: "/x"}})
	if err != nil {
		return err.Error()
	}
	return show(t, files.NewTable(tree), files.First, "")
}

func TestArchive(t *testing.T) {
	// Guarantee: command-files
	for _, tt := range []struct {
		name    string
		entries []entry
		want    string
	}{
		{"files", []entry{{name: "a/b", content: "1"}, {name: "c/", mode: fs.ModeDir}, {name: "./d", content: "2"}}, "x/\nx/a/\nx/a/b=1\nx/c/\nx/d=2\n"},
		{"a name that leaves", []entry{{name: "../a", content: "1"}}, `"../a": its name leaves the archive`},
		{"a name that leaves later", []entry{{name: "a/../../a", content: "1"}}, "its name leaves the archive"},
		{"an absolute name", []entry{{name: "/etc/passwd", content: "1"}}, "its name leaves the archive"},
		{"a link", []entry{{name: "a", content: "b", mode: fs.ModeSymlink}}, `"a": a link or a device`},
		{"twice", []entry{{name: "a", content: "1"}, {name: "a", content: "2"}}, "/x/a exists twice"},
		{"a file that is a folder", []entry{{name: "a", content: "1"}, {name: "a/b", content: "2"}}, "is a file and a folder"},
		{"deep", []entry{{name: strings.Repeat("a/", 40) + "b", content: "1"}}, "deeper than 32 folders"},
		{"too large", []entry{{name: "a", content: strings.Repeat("a", files.MaxBytes)}, {name: "b", content: "1"}}, "the files of a handler have more than 64 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for kind, archive := range map[string][]byte{"zip": zipped(t, tt.entries), "tar.gz": gzipped(t, tarred(t, tt.entries))} {
				if got := load(t, archive); got != tt.want && (strings.Contains(tt.want, "=") || !strings.Contains(got, tt.want)) {
					t.Errorf("%s: got %.200s\nwant %s", kind, got, tt.want)
				}
			}
		})
	}
	many := make([]entry, files.MaxFiles)
	for i := range many {
		many[i] = entry{name: strings.Repeat("x", i%100+1) + strings.Repeat("y", i/100), content: ""}
	}
	if got := load(t, tarred(t, many)); !strings.Contains(got, "more than 10000 files") {
		t.Errorf("many files: %.100s", got)
	}
	for name, content := range map[string][]byte{"no archive": []byte("hello"), "empty": {}, "a damaged zip": []byte("PK\x03\x04"), "a damaged gzip": []byte("\x1f\x8b\x08")} {
		if got := load(t, content); !strings.Contains(got, "archive") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTable(t *testing.T) {
	dir := folder(t, map[string]string{"a/b": "0123456789", "c": ""})
	tree, err := files.Load([]files.Mount{{Folder: dir, To: "/"}})
	must.Succeed(t, err)
	table := files.NewTable(tree)
	for _, tt := range []struct {
		path   string
		folder bool
		want   files.Errno
	}{
		{"a/b", false, files.OK},
		{"a/../a/./b", false, files.OK},
		{"", false, files.OK},
		{".", true, files.OK},
		{"a", true, files.OK},
		{"a/b", true, files.NotFolder},
		{"a/b/", false, files.NotFolder},
		{"a/b/c", false, files.NotFolder},
		{"x", false, files.NotFound},
		{"..", false, files.Outside},
		{"a/../..", false, files.Outside},
		{"/a", false, files.Outside},
	} {
		fd, got := table.Open(files.First, tt.path, tt.folder)
		if got != tt.want {
			t.Errorf("%q: error %d, want %d", tt.path, got, tt.want)
		}
		if got == files.OK {
			table.Close(fd)
		}
	}
	fd, _ := table.Open(files.First, "a/b", false)
	for _, tt := range []struct {
		by   int64
		from uint32
		at   int64
		err  files.Errno
	}{
		{3, 0, 3, files.OK},
		{2, 1, 5, files.OK},
		{-1, 2, 9, files.OK},
		{20, 0, 20, files.OK},
		{-1, 0, 0, files.Invalid},
		{0, 3, 0, files.Invalid},
		{1 << 62, 2, 0, files.Invalid},
	} {
		if at, err := table.Seek(fd, tt.by, tt.from); at != tt.at && err == files.OK || err != tt.err {
			t.Errorf("seek %d from %d: %d, error %d", tt.by, tt.from, at, err)
		}
	}
	if text, err := table.Read(fd, 5); len(text) != 0 || err != files.OK { // the position is behind the end
		t.Errorf("%q, error %d", text, err)
	}
	for range 200 { // all descriptors, and some more
		_, _ = table.Open(files.First, "c", false)
	}
	if _, err := table.Open(files.First, "c", false); err != files.TooMany {
		t.Errorf("error %d", err)
	}
}

// FuzzArchive: whatever an archive contains, no file is outside of its folder.
func FuzzArchive(f *testing.F) {
	f.Add(zipped(f, []entry{{name: "a/b", content: "1"}}))
	f.Add(tarred(f, []entry{{name: "a/b", content: "1"}, {name: "l", content: "a", mode: fs.ModeSymlink}}))
	f.Add(gzipped(f, tarred(f, []entry{{name: "../b", content: "1"}})))
	f.Fuzz(func(t *testing.T, archive []byte) {
		file := filepath.Join(t.TempDir(), "archive")
		must.Succeed(t, os.WriteFile(file, archive, 0o600))
		tree, err := files.Load([]files.Mount{{Archive: file, To: "/x"}})
		if err != nil {
			return
		}
		table := files.NewTable(tree)
		_ = show(t, table, files.First, "")
		if e, _, _ := table.Entry(files.First, 0); e.Name != "x" {
			t.Errorf("%q beside its folder", e.Name)
		}
		if e, done, _ := table.Entry(files.First, 1); !done {
			t.Errorf("%q beside its folder", e.Name)
		}
	})
}

// TestHash: the hash of a tree depends on the names and contents of all files.
func TestHash(t *testing.T) {
	hashes := make(map[string]map[string]string)
	for _, content := range []map[string]string{{"a": "b"}, {"a": "c"}, {"b": "b"}, {"a/a": "b"}, {"a": "b", "b": ""}, {}} {
		var hash bytes.Buffer
		for range 2 {
			tree, err := files.Load([]files.Mount{{Folder: folder(t, content), To: "/"}})
			must.Succeed(t, err)
			before := hash.String()
			hash.Reset()
			if tree.Hash(&hash); before != "" && hash.String() != before {
				t.Errorf("%v has several hashes", content)
			}
		}
		if other, ok := hashes[hash.String()]; ok {
			t.Errorf("%v has the hash of %v", content, other)
		}
		hashes[hash.String()] = content
	}
}
