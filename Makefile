# Allod. `make help` lists the targets; `make test` is what CI runs.
#
# Needed: Go, make, git. What else a target needs from Debian it installs
# through apt-get, if it is missing and we are root.
# Everything built for the tests lies in .tools, keyed by version and built once.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

ROOT    := $(CURDIR)
BIN     ?= bin
TOOLS   := $(ROOT)/.tools
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

# The version comes from VERSION. Go's own look at git adds nothing to it, and
# fails where the tree belongs to another user.
export GOFLAGS := $(filter-out -buildvcs%,$(GOFLAGS)) -buildvcs=false
# Static, reproducible, without paths of the build machine or debug tables.
GO_BUILD := CGO_ENABLED=0 go build -trimpath
LDFLAGS  := -s -w -X main.version=$(VERSION)

# Versions are written in one place, the module files.
modver = $(shell awk '{ sub(/^require /, "") } $$1 == "$(2)" && $$2 ~ /^v/ { print $$2; exit }' $(1))
CNI_MOD  := github.com/containernetworking/plugins
CNI_VER  := $(call modver,test/tools/cniplugins/go.mod,$(CNI_MOD))
ETCD_VER := $(call modver,test/tools/etcd/go.mod,go.etcd.io/etcd/server/v3)
KUBE_VER := $(call modver,test/tools/kubernetes/go.mod,k8s.io/kubernetes)
LINT_VER := $(call modver,go.tools.mod,github.com/golangci/golangci-lint/v2)
FUMPT_VER := $(call modver,go.tools.mod,mvdan.cc/gofumpt)
CRDGEN_VER := $(call modver,test/tools/controllergen/go.mod,sigs.k8s.io/controller-tools)

CNI_BIN  := $(TOOLS)/cniplugins-$(CNI_VER)/bin
# The tests of ./test/kube start these two, and name what builds them if they are not there.
export ETCD := $(TOOLS)/etcd-$(ETCD_VER)/bin/etcd
export KUBE_APISERVER := $(TOOLS)/kubernetes-$(KUBE_VER)/bin/kube-apiserver
LINT     := $(TOOLS)/golangci-lint-$(LINT_VER)/bin/golangci-lint
FUMPT    := $(TOOLS)/gofumpt-$(FUMPT_VER)/bin/gofumpt
CRDGEN   := $(TOOLS)/controller-gen-$(CRDGEN_VER)/bin/controller-gen
# The reference plugins are those that test/tools/cniplugins/tools.go imports.
CNI_PKGS := $(shell sed -n 's/^\t_ "\(.*\)"$$/\1/p' test/tools/cniplugins/tools.go)

# Tests and the demo find the reference CNI plugins through CNI_PATH.
# They fail, and name `make cni-plugins`, if it is not set or the folder is not there.
export CNI_PATH := $(CNI_BIN)
# What `make build` made; tests that are run without make build their own.
export ALLOD_BIN := $(abspath $(BIN))

SUMMARY  := $(TOOLS)/test-summary
TIER     := go run ./test/tier -summary $(SUMMARY)
FUZZTIME ?= 20s
CHECKS   ?= 10000
COUNT    ?= 5
ROUNDS   ?= 10
WRITES   ?= 100
# Packages whose tests make network namespaces, those that start an API server, and
# every other one but test/arch.
NETNS_PKGS := ./test/netns/... ./test/fixture/...
KUBE_PKGS  := ./test/kube/... ./test/bench/...
UNIT_PKGS   = $$(go list ./... | grep -v -x -F -f <(go list $(NETNS_PKGS) $(KUBE_PKGS) ./test/arch))

# $(call need,command that proves it is there,Debian packages)
define need
@$(1) >/dev/null 2>&1 || { \
  if [ "$$(id -u)" != 0 ]; then echo "missing Debian packages: run 'sudo apt-get install -y $(2)', then this again" >&2; exit 1; fi; \
  export DEBIAN_FRONTEND=noninteractive; \
  apt-get update -q </dev/null && apt-get install -q -y --no-install-recommends $(2) </dev/null; }
endef
# The race detector needs a C compiler and libc's headers.
need-cc = $(call need,gcc -E -include stdlib.h -x c /dev/null,gcc libc6-dev)

# $(call build-once,module folder or flags for go,package,ldflags): into a
# temporary file beside the target, then one rename: a target is whole or absent.
define build-once
@mkdir -p $(@D)
@echo "building $(@F) (once; kept in $(patsubst $(ROOT)/%,%,$(@D)))"
@tmp=$@.$$$$ && trap 'rm -f "$$tmp"' EXIT && \
  CGO_ENABLED=0 go build $(1) -trimpath -ldflags "-s -w $(3)" -o "$$tmp" $(2) && mv "$$tmp" $@
endef

# $(call crdgen,folder for deep copies,folder for CRDs): from the types and markers of v1alpha1.
API_DIR := ipam/datastore/v1alpha1
CRD_DIR := manifests/crds
crdgen = $(CRDGEN) object:headerFile=<(echo "// SPDX-License-Identifier: Apache-2.0") crd paths=./$(API_DIR) output:object:dir=$(1) output:crd:dir=$(2)

##@ Build

.PHONY: help
help: ## list the targets (default)
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## bin/allod (CNI IPAM plugin) and bin/allod-agent, static
	@mkdir -p $(BIN)
	$(GO_BUILD) -ldflags "$(LDFLAGS)" -o $(BIN)/allod ./cni
	$(GO_BUILD) -ldflags "$(LDFLAGS)" -o $(BIN)/allod-agent ./agent

.PHONY: demo
demo: build cni-plugins ## 3 pods through ptp + allod, pings, clean-up (root; PLANT=1 plants a leftover: must fail)
	go run ./test/demo

.PHONY: generate
generate: $(CRDGEN) ## rewrite what is generated: deep copies, manifests/crds, the dependency lists
	$(call crdgen,$(API_DIR),$(CRD_DIR))
	go test ./test/arch -run '^TestDependencyLists$$' -update

.PHONY: fmt
fmt: $(FUMPT) ## format the Go files
	$(FUMPT) -w .

.PHONY: clean
clean: ## remove build output; .tools stays (rm -r .tools to build the tools again)
	rm -rf $(BIN) $(SUMMARY)

##@ Test

.PHONY: test
test: ## verify, lint, arch, then the tiers unit, fault, netns, kube; ends with tests and minutes by tier (root)
	@mkdir -p $(TOOLS) && rm -f $(SUMMARY)
	@for step in verify lint tools; do \
	  start=$$(date +%s); \
	  $(MAKE) --no-print-directory $$step; \
	  printf '%s\t-\t-\t-\t%d\n' $$step $$(( $$(date +%s) - start )) >> $(SUMMARY); \
	done
	@$(MAKE) --no-print-directory arch
	@rc=0; \
	for tier in unit fault netns kube; do $(MAKE) --no-print-directory test-$$tier || rc=1; done; \
	go run ./test/tier -table $(SUMMARY); \
	exit $$rc

.PHONY: test-unit
test-unit: ## every test that no other tier runs
	$(need-cc)
	@$(TIER) -name unit -- -skip Fault $(UNIT_PKGS)

.PHONY: test-fault
test-fault: ## the library against every fault at every write (tests named *Fault*)
	$(need-cc)
	@$(TIER) -name fault -- -run Fault ./ipam/...

.PHONY: test-netns
test-netns: build cni-plugins ## the built plugin under the reference plugins in network namespaces (root)
	$(need-cc)
	@[ "$$(id -u)" = 0 ] || { echo "test-netns makes network namespaces: run it as root" >&2; exit 1; }
	@$(TIER) -name netns -- $(NETNS_PKGS)

.PHONY: test-kube
test-kube: build cni-plugins etcd kube-apiserver ## CRDs, store and direct mode on a real API server that the tests start (root)
	$(need-cc)
	@[ "$$(id -u)" = 0 ] || { echo "test-kube makes network namespaces: run it as root" >&2; exit 1; }
	@$(TIER) -name kube -- $(KUBE_PKGS)

.PHONY: arch
arch: ## import direction, forbidden calls, sizes, comments, dependency lists, size of bin/allod
	$(need-cc)
	@$(TIER) -name arch -- ./test/arch

.PHONY: verify
verify: $(FUMPT) $(CRDGEN) ## formatting, generated files, go.mod, go vet, dependency lists; changes nothing
	@bad=$$($(FUMPT) -l .); \
	  [ -z "$$bad" ] || { printf 'not formatted (make fmt):\n%s\n' "$$bad" >&2; exit 1; }
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && $(call crdgen,$$tmp,$$tmp/crds) && \
	  diff -u $(API_DIR)/zz_generated.deepcopy.go $$tmp/zz_generated.deepcopy.go && diff -ru $(CRD_DIR) $$tmp/crds || \
	  { echo 'generated files are not up to date (make generate)' >&2; exit 1; }
	go mod tidy -diff
	go vet ./...
	go test ./test/arch -run '^TestDependency'

.PHONY: lint
lint: $(LINT) ## golangci-lint with .golangci.yml
	$(LINT) run --allow-serial-runners ./...

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (20s)
	@targets=$$(go test -list '^Fuzz' $(UNIT_PKGS) | awk '/^Fuzz/ { name[n++] = $$1; next } \
	  /^ok/ { for (i = 0; i < n; i++) print $$2, name[i]; n = 0; next } !/no test files/ { print > "/dev/stderr" }'); \
	[ -n "$$targets" ] || { echo "no fuzz target found" >&2; exit 1; }; \
	while read -r pkg name; do \
	  echo "== $$pkg $$name"; \
	  go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null; \
	done <<< "$$targets"

.PHONY: bench
bench: etcd kube-apiserver ## figures of the design, each against another of the same run: ROUNDS (10) of WRITES (100)
	go test ./test/bench -count=1 -v -timeout 60m -rounds=$(ROUNDS) -writes=$(WRITES)

.PHONY: nightly
nightly: verify lint build cni-plugins kube-apiserver etcd ## long forms: COUNT (5) shuffled runs, CHECKS (10000) rapid checks, 5 min a fuzz target
	$(need-cc)
	@for dir in cniplugins controllergen etcd kubernetes; do (cd test/tools/$$dir && go mod tidy -diff); done
	@$(TIER) -name repeat -- -count=$(COUNT) -timeout 60m ./...
	@pkgs=$$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | awk '/pgregory.net\/rapid/ { print $$1 }'); \
	[ -n "$$pkgs" ] || { echo "no test uses rapid" >&2; exit 1; }; \
	$(TIER) -name rapid -- -timeout 60m $$pkgs -rapid.checks=$(CHECKS)
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5m

##@ Tools (each built once)

.PHONY: tools
tools: cni-plugins etcd kube-apiserver ## all that the tests run beside our own binaries

.PHONY: cni-plugins
cni-plugins: $(addprefix $(CNI_BIN)/,$(notdir $(CNI_PKGS))) ## the reference CNI plugins, 25 s

.PHONY: etcd
etcd: $(ETCD) ## etcd for the API server, 1 min

.PHONY: kube-apiserver
kube-apiserver: $(KUBE_APISERVER) ## kube-apiserver, 6-10 min of two cores and 2.3 GiB

$(CNI_BIN)/%:
	$(call build-once,-C test/tools/cniplugins,$(filter %/$*,$(CNI_PKGS)),-X $(CNI_MOD)/pkg/utils/buildversion.BuildVersion=$(CNI_VER))

$(ETCD):
	$(call build-once,-C test/tools/etcd,go.etcd.io/etcd/server/v3)

# Without these kube-apiserver calls itself v0.0.0-master and refuses clients by version.
KUBE_V := -X k8s.io/component-base/version
KUBE_N := $(subst ., ,$(patsubst v%,%,$(KUBE_VER)))
$(KUBE_APISERVER):
	$(call build-once,-C test/tools/kubernetes -p 2,k8s.io/kubernetes/cmd/kube-apiserver,\
	  $(KUBE_V).gitVersion=$(KUBE_VER) $(KUBE_V).gitMajor=$(word 1,$(KUBE_N)) $(KUBE_V).gitMinor=$(word 2,$(KUBE_N)) \
	  $(KUBE_V).gitTreeState=clean $(KUBE_V).buildDate=2026-01-01T00:00:00Z)

$(LINT):
	$(call build-once,-modfile=go.tools.mod,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,-X main.version=$(LINT_VER))

$(FUMPT):
	$(call build-once,-modfile=go.tools.mod,mvdan.cc/gofumpt)

# It writes its version into the CRDs. A module of its own: it cannot share one with golangci-lint.
$(CRDGEN):
	$(call build-once,-C test/tools/controllergen,sigs.k8s.io/controller-tools/cmd/controller-gen,-X sigs.k8s.io/controller-tools/pkg/version.version=$(CRDGEN_VER))
