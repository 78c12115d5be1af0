// Package config reads the router's YAML. [Load] returns a [Config] of a file, from which
// internal/compile makes the plan of the router.
//
// It differs from yaml.Unmarshal in three points:
//
//   - It reports all mistakes at once. Each [Problem] has its position (file, line, column and
//     path), its cause and its remedy.
//   - A [Node] is a piece of YAML with its position. A package that knows the meaning of a piece,
//     such as a kind of sink, decodes it ([Node.Decode]) and reports problems of its own
//     ([Node.Problemf]) with the same precision.
//   - An [Expr] translates a position inside a CEL expression to a position in the file, for all
//     YAML styles.
//
// The tags of a struct define its valid YAML. The JSON Schema and docs/CONFIG.md
// (internal/config/reference) are generated from the same tags:
//
//	yaml:"name"           the key; yaml:"-" is no key; without a tag, no key
//	yaml:"name,required"  must be present
//	yaml:"name,path"      a file: relative to the folder of the configuration file (URLs are unchanged), if the [Policy] allows it
//	yaml:"name,written"   the same, of a file or folder that the router writes to
//	yaml:",self"          not a key: a Node that receives the piece itself
//	default:"10ms"        the value if the key is absent; for a list, its elements with blanks between them
//	enum:"skip deliver"   the only values; for a list, of its elements
//	min:"1" max:"10"      bounds of a number or duration, or of the length of a list or map
//	doc:"…"               one sentence for the schema and the reference
//
// Field types are strings, booleans, integers, floats, time.Duration, [Size], [Count], [Secret],
// [Expr], [Node] (kept undecoded), structs, and pointers, slices and maps with string keys of
// those. ${VAR} and ${VAR:-default} are expanded in every scalar except an [Expr] ($${ is a literal
// ${). A key without a value is a mistake, unless a struct or map is expected.
//
// Only this package and internal/config/yamlfile use the YAML library.
package config
