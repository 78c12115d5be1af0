package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// keysOf decodes fleet.keys, with the texts of keys in files.
func keysOf(t *testing.T, files map[string]string, text string) *config.Fleet {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	n, problems := config.ParseNode("test.yaml", []byte(strings.ReplaceAll(text, "DIR", dir)))
	var f config.Fleet
	if problems = append(problems, n.Decode(&f.Keys)...); len(problems) > 0 {
		t.Fatal(problems)
	}
	return &f
}

func TestKeys(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("a", minKey), strings.Repeat("b", minKey)
	read := func(own, also string, unsigned bool) *Keys {
		t.Helper()
		text := "{members: {file: DIR/own}}"
		if also != "" {
			text = "{members: {file: DIR/own}, accept: {members: {file: DIR/also}}}"
		}
		cfg := keysOf(t, map[string]string{"own": own, "also": also + "\n"}, text)
		k, err := NewKeys(cfg.Keys.Members, cfg.Keys.Accept.Members, unsigned)
		must.Succeed(t, err)
		return k
	}
	first, second, both := read(a, "", false), read(b, "", false), read(b, a, false)
	data := []byte("body")
	mac := first.Sign(PurposeFrame, "dr.test.c.f.log", "1.2.0.1", data)
	for name, test := range map[string]struct {
		keys                    *Keys
		mac                     string
		purpose, subject, place string
		data                    string
		want                    error
	}{
		"as signed":         {first, mac, PurposeFrame, "dr.test.c.f.log", "1.2.0.1", "body", nil},
		"another purpose":   {first, mac, PurposeLead, "dr.test.c.f.log", "1.2.0.1", "body", ErrUnsigned},
		"another subject":   {first, mac, PurposeFrame, "dr.test.c.f.lo", "1.2.0.1", "body", ErrUnsigned},
		"another place":     {first, mac, PurposeFrame, "dr.test.c.f.log", "1.3.0.1", "body", ErrUnsigned},
		"fields that shift": {first, mac, PurposeFrame, "dr.test.c.f.log1", ".2.0.1", "body", ErrUnsigned},
		"another body":      {first, mac, PurposeFrame, "dr.test.c.f.log", "1.2.0.1", "bodx", ErrUnsigned},
		"cut":               {first, mac[:len(mac)-1], PurposeFrame, "dr.test.c.f.log", "1.2.0.1", "body", ErrUnsigned},
		"none":              {first, "", PurposeFrame, "dr.test.c.f.log", "1.2.0.1", "body", ErrUnsigned},
		"none, accepted":    {read(a, "", true), "", PurposeFrame, "dr.test.c.f.log", "1.2.0.1", "body", nil},
		"wrong, accepted":   {read(a, "", true), mac, PurposeFrame, "dr.test.c.f.log", "1.2.0.1", "bodx", ErrUnsigned},
		"another key":       {second, mac, PurposeFrame, "dr.test.c.f.log", "1.2.0.1", "body", ErrOtherKey},
		"the former key":    {both, mac, PurposeFrame, "dr.test.c.f.log", "1.2.0.1", "body", nil},
		"no keys":           {nil, "", PurposeFrame, "", "", "", nil},
	} {
		if err := test.keys.Verify(test.mac, test.purpose, test.subject, test.place, []byte(test.data)); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
	if signed := (*Keys)(nil).Sign(PurposeLead, "", "", nil); signed != "" {
		t.Errorf("without keys: %q", signed)
	}
}

func TestUnusableKeys(t *testing.T) {
	t.Parallel()
	c := &Conn{}
	cfg := keysOf(t, map[string]string{"short": "secret"}, "{members: {file: DIR/short}}")
	must.Fail(t, c.readKeys(cfg, Member), "fleet.keys.members: the key has 6 bytes, and needs 32 or more")
	must.Succeed(t, c.readKeys(cfg, Worker)) // it does not read that key
	cfg = keysOf(t, nil, "{members: {file: DIR/none}}")
	must.Fail(t, c.readKeys(cfg, Member), "fleet.keys.members: secret file ")
}
