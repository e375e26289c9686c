"""The README's security section: each row and each sentence of it has tests by name, and none is added without one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cachekeeper.errors import Untrusted
from tests.test_secrets import TOKENS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
[SECTION] = re.findall(r"^## Security\n(.*?)(?=^## )", README, re.DOTALL | re.MULTILINE)

# A row, by its first two cells -> the tests of what holds it off, and of what does not.
THREATS: dict[str, str] = {
    "the bucket, the network to it: put other bytes, manifests or names there": """
        faults/test_poisoned_stores.py: test_refused test_refused_in_a_bucket
        faults/test_hostile_manifests.py: test_sums_that_are_wrong test_an_id_that_is_wrong
        faults/test_bit_flips.py: *
        verbs/test_restore.py: test_an_id_in_a_launch_script test_damage_in_the_store_changes_nothing""",
    "the bucket, an old name: point a name back to a snapshot with a flaw": """
        faults/test_poisoned_stores.py: test_a_store_that_was_rolled_back
        test_rollback.py: test_what_a_name_has_left_is_refused test_moving_on_is_remembered
            test_a_machine_that_has_seen_nothing_cannot_know""",
    "the bucket: delete": """
        s3/test_object_lock.py: test_nobody_deletes_what_a_pinned_snapshot_needs
            test_a_real_snapshot_restores_after_everything_was_deleted test_undo_brings_back_what_a_plain_delete_hid
        verbs/test_copy.py: test_the_whole_store_byte_for_byte
        cli/test_restore.py: test_missing_ok""",
    "a store on disk: the same": """
        test_ownership.py: test_a_store_that_all_may_write_to test_a_part_of_a_store_of_another_user
            test_a_group_that_was_let_in_is_trusted test_owners_that_are_trusted
        stores/test_local.py: test_objects_are_read_only_and_directories_the_owners_alone
            test_a_store_that_every_user_may_change_says_so""",
    "a directory above the cache, `/tmp`: swap the directory, plant a link or a file": """
        test_ownership.py: test_a_parent_in_which_all_may_rename test_a_link_of_another_user
            test_a_sticky_parent_protects_only_what_is_ones_own test_where_a_link_leads_is_looked_at_from_the_root_on
        faults/test_permissions.py: test_a_parent_in_which_all_may_put_another_target
            test_a_link_that_another_user_swaps_meanwhile
        faults/test_planted_links.py: test_a_directory_that_is_a_link
            test_a_file_that_is_a_link_is_replaced_and_not_written_through""",
    "the cache directory: plant entries": """
        faults/test_permissions.py: test_files_of_another_user_are_not_saved test_a_target_that_all_may_write_into
        verbs/test_restore.py: test_a_wrong_file_is_replaced_and_put_aside test_what_is_not_in_it_stays
            test_exact_moves_extras_aside_and_deletes_nothing test_another_users_file_is_replaced_by_our_own""",
    "an archive to `import`, a manifest: links, `..`, bombs, false lengths": """
        test_archives.py: test_what_no_cache_holds_is_refused_and_nothing_is_written_outside test_a_bomb_is_stopped
            test_a_link_is_not_followed_by_a_later_member
            test_a_declared_size_that_cannot_be_is_refused_before_it_is_written
        verbs/test_import_cache.py: test_a_hostile_archive_leaves_nothing_anywhere
        faults/test_hostile_manifests.py: test_paths_of_files test_a_frame_that_is_a_bomb
            test_frames_of_wrong_lengths""",
    # What is not defended against has no test.
    "the launch script, the environment: anything": "",
    "the machine that compiles and signs: sign malicious kernels": "",
}

# A sentence of the list, by its bold words.
CLAIMS: dict[str, str] = {
    "Keys": """
        test_keyfiles.py: test_ssh_reads_ours test_a_key_of_ssh_signs test_a_passphrase_is_asked_for_on_a_terminal
            test_a_key_that_others_can_read_is_refused test_a_key_of_somebody_else_is_refused
            test_one_key_as_text_and_in_a_file test_several_keys_in_a_file test_which_key_signs
        faults/test_poisoned_stores.py: test_the_setting_holds_for_a_job_too""",
    "Two things are signed": """
        test_trust.py: test_a_name_needs_both_signatures test_the_signature_of_another_move
        test_signing.py: test_only_this_key_and_only_this_statement
        verbs/test_sign.py: test_a_name_and_what_it_points_to test_a_snapshot_is_signed_as_it_is_saved
            test_a_name_that_was_not_moved_is_not_signed""",
    "Checked before more than headers is read": """
        test_trust.py: test_nothing_of_a_snapshot_is_read_before_it_is_vouched_for
        faults/test_poisoned_stores.py: test_refused test_missing_ok_is_not_trust
            test_without_the_library_nothing_is_restored
        cli/test_restore.py: test_only_what_is_signed""",
    "A name that goes back is noticed": """
        test_rollback.py: test_what_a_name_has_left_is_refused test_another_history_is_refused
            test_a_person_may_allow_it
        faults/test_poisoned_stores.py: test_a_store_that_was_rolled_back""",
    "The full id in the launch script is the strongest": """
        verbs/test_restore.py: test_an_id_in_a_launch_script
        faults/test_hostile_manifests.py: test_an_id_that_is_wrong""",
    "`latest` and signatures": """
        test_trust.py: test_latest_is_the_newest_that_is_signed
        test_signatures.py: test_what_is_found_says_only_who_is_said_to_have_signed
        verbs/test_copy.py: test_signatures_come_along test_a_move_of_another_number_is_signed_anew
        cli/test_show.py: test_signatures""",
    "Not covered by signatures": "test_rollback.py: test_a_machine_that_has_seen_nothing_cannot_know",
    "Only what is yours.": """
        test_ownership.py: test_another_users test_what_all_may_write_into test_a_parent_in_which_all_may_rename
            test_a_link_of_another_user test_owners_that_are_trusted test_what_is_made_is_this_users_alone
        faults/test_permissions.py: test_a_cache_of_another_user_is_not_saved test_a_target_of_somebody_else
            test_a_target_that_all_may_write_into test_files_of_another_user_are_not_saved
        test_config.py: test_settings_of_somebody_else_are_refused test_what_is_kept_is_the_owners_alone""",
    "Secrets are not saved.": """
        test_secrets.py: test_a_token_is_found_by_its_kind test_the_value_of_a_secret_variable_is_found_and_named
        verbs/test_snapshot.py: test_a_file_with_a_secret_is_not_saved test_no_byte_of_it_reaches_the_store
            test_secrets_are_saved_on_request_and_noted_each_time""",
    "What is recorded": """
        test_masking.py: test_a_secret_that_is_named test_a_secret_within_a_text
        verbs/test_snapshot.py: test_what_is_recorded_without_its_value_is_told""",
    "Secrets that are not found": """
        test_secrets.py: test_placeholders_examples_and_hashes_are_none test_values_that_are_not_looked_for
        verbs/test_snapshot.py: test_what_a_compiler_made_is_not_looked_at""",
    "Not defended against": "",
}

UNDEFENDED = {
    "the launch script, the environment: anything",
    "the machine that compiles and signs: sign malicious kernels",
    "Not defended against",
}


def listed_tests(text: str) -> list[tuple[str, str]]:
    """The file and the name of each test that a row lists."""
    found, place = [], ""
    for word in text.split():
        if word.endswith(":"):
            place = word[:-1]
        else:
            found.append((place, word))
    return found


def rows() -> list[list[str]]:
    lines = [line for line in SECTION.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_each_row_of_the_table_is_here():
    assert [f"{row[0]}: {row[1]}" for row in rows()] == list(THREATS)


def test_each_claim_of_the_list_is_here():
    bullets = re.findall(r"^- (.*)$", SECTION, re.MULTILINE)
    assert [bullet.split("**")[1] for bullet in bullets if bullet.startswith("**")] == list(CLAIMS)
    assert all(bullet.startswith("**") for bullet in bullets)


def test_what_is_held_off_has_tests():
    assert {claim for claim, text in {**THREATS, **CLAIMS}.items() if not listed_tests(text)} == UNDEFENDED
    assert {f"{row[0]}: {row[1]}" for row in rows() if row[2].startswith("nothing")} == UNDEFENDED & set(THREATS)


@pytest.mark.parametrize("claim", [*THREATS, *CLAIMS])
def test_its_tests_exist(claim: str):
    for place, name in listed_tests({**THREATS, **CLAIMS}[claim]):
        tree = ast.parse((ROOT / "tests" / place).read_text())
        known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
        assert known and name in known | {"*"}, f"{place} has no {name}"


def test_the_codes_of_what_is_refused():
    [listed] = re.findall(r"`(unsigned [a-z -]+)`", SECTION)
    assert set(listed.split()) == {kind.code for kind in Untrusted.__subclasses__()}


def test_the_tokens_that_are_known():
    """The README names who issues them; tests/test_secrets.py has one of each kind."""
    [listed] = re.findall(r"token of a known shape stands \((.*?)\)", " ".join(SECTION.split()))
    named = listed.split(", ")
    assert len(named) == len(TOKENS)
    for name in named:
        words = {word.rstrip("s").lower() for word in name.split()}
        assert [kind for kind in TOKENS if words <= set(kind.lower().split())], name
